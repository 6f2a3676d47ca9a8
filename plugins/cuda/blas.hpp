// SPDX-License-Identifier: Apache-2.0
// blas.hpp - products of many rows through cuBLASLt, with algorithms that are chosen once.
//
// The library is loaded when it is first needed (blas_library.hpp); the plugin does not link it.
// Its heuristics order the algorithms for a shape, but the order may differ from process to
// process and the first one is not always the fastest. So the first candidates are timed once, on
// random data and a stream of our own, and the winner is pinned: the first of the list unless
// another is more than 3 % faster. Winners are kept in a file of the user's cache folder
// (blas_choices.hpp), so that the next process takes the same ones; blas_report.hpp shows them.
//
// Timing happens at the first product of a shape, which for a model is the capture of its graphs
// at load. It is done for rows rounded up to a power of two: prompts of any length share it.
//
// A choice made anew changes times, not results: the same inputs give the same bits on every device
// of a model with the same library (measured for BF16). Algorithms give different bits where they
// split the sum over the inputs in different numbers of parts, so blas_parts.hpp fixes that number
// for a shape, and partial sums are added in a fixed order. Those that have the number still agree
// bit for bit but for one that is slow (notes/2026-11-28-parts-of-a-sum.md); who disagrees with
// most is not timed.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "blas_choices.hpp"
#include "blas_library.hpp"

namespace frt::cuda {

class Device;
class Stream;

// What is multiplied by what.
enum class BlasTypes : uint8_t {
  kBf16,        // bf16 by bf16
  kFp8Block,    // e4m3 with a scale per row and 128 inputs, by e4m3 in scaled blocks of 128 x 128
  kFp8Channel,  // e4m3 with a scale per row, by e4m3 with a scale per output
  kFp8Tensor,   // e4m3 by e4m3, all scales in one factor
};

// One kind of product y = x W^T: x (rows, inputs), W (outputs, inputs) contiguous, y (rows,
// outputs).
struct BlasShape {
  BlasTypes types;
  frt_dtype y_dtype;  // f32, bf16
  bool accumulate;    // y +=
  int32_t rows, outputs, inputs;
  int64_t x_stride, y_stride;  // elements
  auto operator<=>(const BlasShape&) const = default;
};

// All aligned to 16 bytes, rows too.
struct BlasOperands {
  const void* x;
  // kFp8Block: (ceil(inputs / 128), rows). kFp8Channel: (rows).
  const float* x_scale;
  const void* weight;
  // kFp8Block: (ceil(outputs / 128), ceil(inputs / 128) rounded up to 4). kFp8Channel: (outputs).
  const float* weight_scale;
  void* y;
  void* workspace;   // Blas::kWorkspaceBytes
  float factor = 1;  // y = factor * x W^T, or y += that
};

class Blas {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  // Loads the library. Throws frt::Error(FRT_ERR_UNSUPPORTED) where it is missing.  [setup]
  explicit Blas(Device& device);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // The library of the device; NULL where it is missing, after one warning, or where the device
  // lacks feature::kLibrary.  [setup]
  static Blas* find(Device& device);

  // Whether the library has an algorithm for the shape; chooses it. The first call for a shape may
  // take tens of milliseconds.  [setup]
  bool offers(const BlasShape& shape);
  // Submits one product. False, and nothing submitted, where the shape is not offered.  [driver]
  bool multiply(Stream& stream, const BlasShape& shape, const BlasOperands& operands);

  // What the algorithm of a shape is chosen from.  [setup]
  std::vector<cublasLtMatmulAlgo_t> algorithms(const BlasShape& shape);
  // Submits one product by one of them.  [driver]
  void multiply(Stream& stream, const BlasShape& shape, const BlasOperands& operands,
                const cublasLtMatmulAlgo_t& algorithm);

 private:
  struct Plan;
  Plan& plan(const BlasShape& shape);
  std::unique_ptr<Plan> describe(const BlasShape& shape);
  bool accepts(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm);
  std::vector<cublasLtMatmulAlgo_t> heuristics(const Plan& plan, uint32_t reductions);
  std::vector<cublasLtMatmulAlgo_t> candidates(const Plan& plan, const BlasShape& shape);
  void choose(Plan& plan, const BlasShape& shape);
  bool measure(const BlasShape& shape, BlasChoices::Choice& choice);

  Device& device_;
  BlasLibrary library_;
  cublasLtHandle_t handle_ = nullptr;
  std::unique_ptr<BlasChoices> choices_;
  mutable std::mutex mutex_;
  std::map<BlasShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace frt::cuda
