// SPDX-License-Identifier: Apache-2.0
#include "device_memory.hpp"

#include <cstring>
#include <vector>

#include "model_rig.hpp"

using frt::qwen36::DeviceMemory;
using frt::test::ModelRig;

namespace {

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return data;
}

}  // namespace

// The CPU's device memory can be looked at, so both ways in can be compared.
TEST_CASE("uploads of every size arrive, staged and direct") {
  const ModelRig rig("synthetic:qwen3.6-tiny", "max_context = 64\nslots = 1\nprefill_chunk = 16");
  for (const bool in_place : {true, false}) {
    CAPTURE(in_place);
    DeviceMemory memory(rig.context, in_place);
    const std::size_t sizes[] = {
        1, 255, 257, std::size_t{70} << 20, 4096, 3, std::size_t{33} << 20};
    std::vector<std::vector<std::byte>> data;
    std::vector<const std::byte*> placed;
    for (const std::size_t size : sizes) {
      data.push_back(pattern(size, static_cast<unsigned>(data.size())));
      placed.push_back(memory.upload(data.back()));
    }
    std::byte* pieces = memory.place(1000);
    memory.upload_to(pieces + 10, std::span(data[1]).first(200));
    memory.upload_to(pieces + 500, std::span(data[4]).first(300));
    memory.finish();
    for (std::size_t i = 0; i < data.size(); ++i) {
      CHECK(reinterpret_cast<std::uintptr_t>(placed[i]) % 256 == 0);
      CHECK(std::memcmp(placed[i], data[i].data(), data[i].size()) == 0);
    }
    CHECK(std::memcmp(pieces + 10, data[1].data(), 200) == 0);
    CHECK(std::memcmp(pieces + 500, data[4].data(), 300) == 0);
  }
}

TEST_CASE("only aligned host memory is used in place") {
  const ModelRig rig("synthetic:qwen3.6-tiny", "max_context = 64\nslots = 1\nprefill_chunk = 16");
  alignas(16) std::byte bytes[64]{};
  DeviceMemory near_memory(rig.context, true);
  CHECK(near_memory.adopt(std::span(bytes)) == bytes);
  CHECK(near_memory.adopt(std::span(bytes).subspan(8)) == nullptr);
  DeviceMemory far_memory(rig.context, false);
  CHECK(far_memory.adopt(std::span(bytes)) == nullptr);
}
