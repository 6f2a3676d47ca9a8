// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt: whichever algorithm the timing prefers, the bits are the same.
#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bf16_values.hpp"
#include "cuda_device.hpp"

using namespace frt::cuda_test;

namespace {

std::vector<uint16_t> random_bf16(std::size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(as_bf16(normal(random))) >> 16));
  }
  return values;
}

}  // namespace

TEST_CASE("cuBLASLt: the algorithms that a choice is made from agree with it bit for bit") {
  FRT_NEEDS_DEVICE();
  struct Shape {
    int32_t rows, outputs, inputs;
  };
  int compared = 0, disagreed = 0;
  for (const Shape& shape : {Shape{16, 1024, 5120},
                             {33, 2048, 4096},
                             {64, 5120, 2048},
                             {300, 48, 5120},
                             {130, 1024, 4096}}) {
    CudaDevice device;
    const StreamHandle stream = device.stream();
    const auto upload = [&](const std::vector<uint16_t>& values) {
      auto* memory = device.allocate<uint16_t>(values.size());
      device.copy(stream, memory, FRT_SPACE_DEVICE, values.data(), FRT_SPACE_HOST,
                  values.size() * sizeof(uint16_t));
      return memory;
    };
    const auto rows = static_cast<std::size_t>(shape.rows);
    const auto outputs = static_cast<std::size_t>(shape.outputs);
    const auto inputs = static_cast<std::size_t>(shape.inputs);
    const std::vector<uint16_t> x = random_bf16(rows * inputs, 1),
                                weight = random_bf16(outputs * inputs, 2);
    int32_t count = 0;
    BlasArgs args;
    args.rows = shape.rows;
    args.outputs = shape.outputs;
    args.inputs = shape.inputs;
    args.count = &count;
    args.x = upload(x);
    args.weight = upload(weight);
    args.workspace = device.allocate<uint8_t>(std::size_t{32} << 20);
    args.y = device.allocate<float>(rows * outputs);
    const auto result = [&](int32_t algorithm) {
      args.algorithm = algorithm;
      device.fill(stream, args.y, rows * outputs * sizeof(float), 0xFF);
      device.run(stream, kBlas, args);
      return device.read(stream, args.y, rows * outputs);
    };
    const std::vector<float> chosen = result(-1);
    if (count == 0) {
      MESSAGE("skipped: this machine has no cuBLASLt");
      return;
    }
    int others = 0;
    for (int32_t algorithm = 0; algorithm < count; ++algorithm) {
      const std::vector<float> found = result(algorithm);
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(chosen[i])) {
          ++others;
          break;
        }
      }
    }
    CAPTURE(shape.rows);
    CAPTURE(shape.outputs);
    CAPTURE(shape.inputs);
    // One slow algorithm adds in another order; the timing leaves it out.
    CHECK(others <= 1);
    CHECK(count >= 2);
    compared += count;
    disagreed += others;
  }
  MESSAGE(compared << " algorithms, " << disagreed << " disagree with most");
}
