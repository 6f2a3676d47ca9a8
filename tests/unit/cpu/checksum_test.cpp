// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <frt/ops/checksum.h>

#include <vector>

#include "cpu_device.hpp"

using frt::cpu_test::CpuDevice;

TEST_CASE("the checksum is the exclusive or of all words, whatever the number of workers") {
  for (const int64_t threads : {1, 2}) {
    CpuDevice device({.threads = threads});
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{13},
                                    std::size_t{131072}, std::size_t{400001}}) {
      std::vector<uint64_t> words(count);
      uint64_t state = 7, expected = 0;
      for (uint64_t& word : words) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        word = state;
        expected ^= word;
      }
      const uint64_t padding = 0;
      uint64_t result = 99;
      frt_checksum_args args{};
      args.x = words.empty() ? &padding : words.data();
      args.bytes = count * sizeof(uint64_t);
      args.y = &result;
      device.run(FRT_OP_CHECKSUM, args);
      CHECK(result == expected);
    }
  }
}

TEST_CASE("the checksum refuses what it cannot read, naming the argument") {
  CpuDevice device;
  uint64_t words[2] = {1, 2}, result = 0;
  frt_checksum_args args{};
  args.x = words;
  args.bytes = 12;
  args.y = &result;
  std::string message;
  CHECK(device.refusal(FRT_OP_CHECKSUM, args, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("bytes") != std::string::npos);
  args.bytes = 16;
  args.x = reinterpret_cast<const char*>(words) + 4;
  CHECK(device.refusal(FRT_OP_CHECKSUM, args) == FRT_ERR_INVALID_ARGUMENT);
  args.x = nullptr;
  CHECK(device.refusal(FRT_OP_CHECKSUM, args) == FRT_ERR_INVALID_ARGUMENT);
}
