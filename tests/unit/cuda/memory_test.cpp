// SPDX-License-Identifier: Apache-2.0
// Memory of the three spaces, copies between all of them, fills: eagerly and recorded.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <algorithm>

#include <numeric>

#include "cuda_device.hpp"

using namespace frt::cuda_test;
using frt::check;

namespace {

constexpr frt_space kSpaces[] = {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED, FRT_SPACE_HOST};

std::vector<uint8_t> pattern(std::size_t bytes, uint32_t seed) {
  std::vector<uint8_t> values(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<uint8_t>(state >> 24);
  }
  return values;
}

}  // namespace

TEST_CASE("memory: every space is aligned, and what cannot be had is refused with numbers") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  for (const frt_space space : kSpaces) {
    for (const std::size_t bytes : {1u, 255u, 100000u}) {
      CHECK(reinterpret_cast<uintptr_t>(device.allocate<uint8_t>(bytes, space)) % 256 == 0);
    }
  }
  frt_error error{};
  void* pointer = nullptr;
  const auto& backend = device.backend();
  CHECK(backend.memory_alloc(device.handle(), FRT_SPACE_DEVICE, 0, &pointer, &error) ==
        FRT_ERR_INVALID_ARGUMENT);
  CHECK(backend.memory_alloc(device.handle(), 7, 16, &pointer, &error) == FRT_ERR_INVALID_ARGUMENT);
  for (const frt_space space : kSpaces) {
    CHECK(backend.memory_alloc(device.handle(), space, uint64_t{1} << 45, &pointer, &error) ==
          FRT_ERR_OUT_OF_MEMORY);
    const std::string text = error.message;
    CHECK_MESSAGE(text.find("35184372088832 bytes (32768.00 GiB) needed") != std::string::npos,
                  text);
    CHECK_MESSAGE(text.find(" GiB") != text.rfind(" GiB"), text);  // and what there is
  }
  CHECK(pointer == nullptr);
  CHECK(device.allocate<uint8_t>(1000) != nullptr);  // the refusals left nothing behind
  uint64_t free = 0;
  uint64_t total = 0;
  CHECK(backend.device_memory(device.handle(), &free, &total) == FRT_OK);
  CHECK(free > 0);
  CHECK(free < total);
}

TEST_CASE("copies: all pairs of spaces, odd sizes and addresses") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  constexpr std::size_t kLargest = (9u << 20) + 13;  // several pieces of the staging block
  for (const frt_space from : kSpaces) {
    for (const frt_space to : kSpaces) {
      auto* source = device.allocate<uint8_t>(kLargest + 1, from);
      auto* target = device.allocate<uint8_t>(kLargest + 1, to);
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{3},
                                      std::size_t{4097}, std::size_t{4} << 20, kLargest}) {
        const auto values = pattern(bytes, static_cast<uint32_t>(bytes) + from * 3 + to);
        std::vector<uint8_t> result(bytes);
        device.copy(stream, source + 1, from, values.data(), FRT_SPACE_HOST, bytes);
        device.copy(stream, target + 1, to, source + 1, from, bytes);
        device.copy(stream, result.data(), FRT_SPACE_HOST, target + 1, to, bytes);
        device.sync(stream);
        CHECK_MESSAGE(result == values, "from ", from, " to ", to, ", ", bytes, " bytes");
      }
    }
  }
  const frt_backend_copy bad[] = {
      {nullptr, &stream, 4, FRT_SPACE_HOST, FRT_SPACE_HOST},
      {device.allocate(1), nullptr, 4, FRT_SPACE_DEVICE, FRT_SPACE_HOST},
      {device.allocate(1), &stream, 4, 9, FRT_SPACE_HOST}};
  for (const auto& copy : bad) {
    CHECK(device.backend().copy(stream, &copy, 1) == FRT_ERR_INVALID_ARGUMENT);
  }
}

TEST_CASE("copies: a recorded copy moves what is there when it runs") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  const StreamHandle other = device.stream();
  constexpr std::size_t kBytes = (5u << 20) + 1;
  for (const frt_space from : kSpaces) {
    for (const frt_space to : kSpaces) {
      auto* source = device.allocate<uint8_t>(kBytes, from);
      auto* target = device.allocate<uint8_t>(kBytes, to);
      const ExecHandle exec =
          device.capture(stream, [&] { device.copy(stream, target, to, source, from, kBytes); });
      for (uint32_t round = 0; round < 3; ++round) {
        const auto values = pattern(kBytes, round + 17);
        std::vector<uint8_t> result(kBytes);
        const StreamHandle& where = round == 1 ? other : stream;
        device.copy(where, source, from, values.data(), FRT_SPACE_HOST, kBytes);
        device.launch(exec, where);
        device.copy(where, result.data(), FRT_SPACE_HOST, target, to, kBytes);
        device.sync(where);
        CHECK_MESSAGE(result == values, "from ", from, " to ", to, ", round ", round);
      }
    }
  }
}

TEST_CASE("copies: ordinary memory is read in stream order, and submitting does not wait") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  uint32_t source = 1;
  uint32_t result = 0;
  uint32_t* value = device.allocate(1);
  {
    Gate gate(device, stream);
    const auto change = [](void* user, frt_error*) {
      *static_cast<uint32_t*>(user) = 42;
      return frt_status{FRT_OK};
    };
    check(device.backend().stream_call(stream, change, &source), "stream_call");
    device.copy(stream, value, FRT_SPACE_DEVICE, &source, FRT_SPACE_HOST, 4);
    device.step(stream, value, 1);
    device.copy(stream, &result, FRT_SPACE_HOST, value, FRT_SPACE_DEVICE, 4);
    CHECK(source == 1);
    CHECK(result == 0);
  }
  CHECK(result == 127);
}

TEST_CASE("copies: batches of many and of mixed spaces, also recorded and on the default stream") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  constexpr std::size_t kCount = 301;
  constexpr std::size_t kStride = 96;
  const StreamHandle stream = device.stream();
  const StreamHandle fallback = device.wrap(nullptr);
  auto* from_device = device.allocate<uint8_t>(kCount * kStride);
  auto* from_pinned = device.allocate<uint8_t>(kCount * kStride, FRT_SPACE_HOST_PINNED);
  auto* to = device.allocate<uint8_t>(kCount * kStride);
  const auto values = pattern(kCount * kStride, 5);
  std::vector<frt_backend_copy> copies;
  std::vector<uint8_t> expected(kCount * kStride, 0xEE);
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t at = i * kStride;
    const std::size_t bytes = i % kStride;
    const uint8_t* sources[] = {from_device + at, from_pinned + at, values.data() + at};
    copies.push_back({to + at + 1, sources[i % 3], bytes, FRT_SPACE_DEVICE, kSpaces[i % 3]});
    std::memcpy(expected.data() + at + 1, values.data() + at, bytes);
  }
  const auto submit = [&](frt_backend_stream where) {
    check(device.backend().copy(where, copies.data(), copies.size()), "copy");
  };
  const auto read_back = [&](frt_backend_stream where, auto&& body) {
    device.copy(where, from_device, FRT_SPACE_DEVICE, values.data(), FRT_SPACE_HOST, values.size());
    device.copy(where, from_pinned, FRT_SPACE_HOST_PINNED, values.data(), FRT_SPACE_HOST,
                values.size());
    device.fill(where, to, kCount * kStride, 0xEE);
    body();
    return device.read(where, to, kCount * kStride);
  };
  CHECK(read_back(stream, [&] { submit(stream); }) == expected);
  CHECK(read_back(fallback, [&] { submit(fallback); }) == expected);
  const ExecHandle exec = device.capture(stream, [&] { submit(stream); });
  CHECK(device.backend().exec_node_count(exec) > 200);
  CHECK(read_back(stream, [&] { device.launch(exec, stream); }) == expected);
}

TEST_CASE("copies: a few small ones to and from pinned memory, of any length and place, in order") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  constexpr std::size_t kBytes = 64 << 10;
  const StreamHandle stream = device.stream();
  const StreamHandle fallback = device.wrap(nullptr);
  auto* told = device.allocate<uint8_t>(kBytes, FRT_SPACE_HOST_PINNED);
  auto* inside = device.allocate<uint8_t>(kBytes);
  auto* answer = device.allocate<uint8_t>(kBytes, FRT_SPACE_HOST_PINNED);
  const auto values = pattern(kBytes, 7);
  std::copy(values.begin(), values.end(), told);
  const std::size_t lengths[] = {4, 0, 1, 4096, 511, 64, 4095, 7};
  for (const frt_backend_stream where :
       std::initializer_list<frt_backend_stream>{stream, fallback}) {
    for (const std::size_t shift : {0, 1, 4}) {
      std::vector<frt_backend_copy> in, out;
      std::vector<uint8_t> expected(kBytes, 0xEE);
      std::fill(answer, answer + kBytes, uint8_t{0xEE});
      for (std::size_t i = 0; i < std::size(lengths); ++i) {
        const std::size_t at = i * 8192, bytes = lengths[i];
        in.push_back(
            {inside + at + shift, told + at, bytes, FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED});
        out.push_back(
            {answer + at + 1, inside + at + shift, bytes, FRT_SPACE_HOST_PINNED, FRT_SPACE_DEVICE});
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      }
      check(device.backend().copy(where, in.data(), in.size()), "copy");
      check(device.backend().copy(where, out.data(), out.size()), "copy");
      device.sync(where);
      CHECK(std::equal(expected.begin(), expected.end(), answer));
    }
  }
}

TEST_CASE("fills: every space, odd ranges, eagerly and recorded") {
  FRT_NEEDS_DEVICE();
  CudaDevice device;
  const StreamHandle stream = device.stream();
  constexpr std::size_t kBytes = 10001;
  for (const frt_space space : kSpaces) {
    auto* block = device.allocate<uint8_t>(kBytes, space);
    const auto fill = [&](std::size_t at, std::size_t bytes, uint8_t value) {
      check(device.backend().fill(stream, block + at, space, bytes, value), "fill");
    };
    const ExecHandle exec = device.capture(stream, [&] { fill(1, kBytes - 2, 7); });
    for (const bool recorded : {false, true}) {
      fill(0, kBytes, 1);
      if (recorded) {
        device.launch(exec, stream);
      } else {
        fill(1, kBytes - 2, 7);
      }
      fill(3, 0, 9);
      std::vector<uint8_t> result(kBytes);
      device.copy(stream, result.data(), FRT_SPACE_HOST, block, space, kBytes);
      device.sync(stream);
      CHECK(result.front() == 1);
      CHECK(result.back() == 1);
      CHECK(std::accumulate(result.begin(), result.end(), 0u) == 7u * (kBytes - 2) + 2);
    }
  }
  CHECK(device.backend().fill(stream, nullptr, FRT_SPACE_DEVICE, 4, 0) == FRT_ERR_INVALID_ARGUMENT);
}
