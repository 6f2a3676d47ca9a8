// SPDX-License-Identifier: Apache-2.0
// weights.hpp - the weights of one policy in device memory, in the form the operators take, and
// where they come from.
//
// Folded at load, in f32: 1 + w of the prefix norms; the bias of the patch convolution into the
// position embeddings. Merged: query, key and value of a vision layer; key and value elsewhere.
// Query and key/value, and gate and up, lie one behind the other. Convolution rows are padded to a
// multiple of 16 columns. Not uploaded: what only depends on time (time_tables.hpp) and what is
// never read (the expert's lm_head, the last prefix layer but its keys and values).
//
// Matrices are BF16 with bf16 activations; with f32 activations they stay what the file has. With a
// calibration the matrices of all layers are FP8, each with one scale (FP8_TENSOR: in a floating
// format a scale per output gains nothing but for outputs 2^-15 of the largest, and one scale goes
// into the factor of a product). The others stay: patches and the table of tokens are read by no
// large product, the projector and the action projections are few and everything passes them.
#pragma once

#include <frt/kernels.h>
#include <frt/weights.hpp>

#include <array>
#include <cstdint>
#include <frt/models/device_memory.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "calibration.hpp"
#include "config.hpp"

namespace frt::pi05 {

// Of what the products of a layer multiply: FP8 with this scale; 0: activations as they are.
struct InputScales {
  float qkv = 0, output = 0, hidden = 0, down = 0;
};

inline std::uint64_t bytes_of(frt_dtype dtype, std::int64_t elements) {
  return static_cast<std::uint64_t>(elements) * dtype_bits(dtype) / 8;
}

struct VisionLayer {
  const float *norm1 = nullptr, *norm1_bias = nullptr;  // (vision_width)
  const float *norm2 = nullptr, *norm2_bias = nullptr;
  frt_weight qkv{}, output{}, fc1{}, fc2{};
  const float *qkv_bias = nullptr, *output_bias = nullptr, *fc1_bias = nullptr, *fc2_bias = nullptr;
  InputScales scales;
};

// A Gemma layer; the expert's has no norm weights. The last of the prefix has only key_value.
struct GemmaLayer {
  const float *input_norm = nullptr, *post_norm = nullptr;  // (width), 1 + w
  frt_weight query{}, key_value{}, output{}, gate{}, up{}, down{};
  InputScales scales;
};

struct WeightTotals {
  std::uint64_t parameters = 0;  // in device memory
  std::uint64_t bytes = 0;
  std::uint64_t expert_bytes = 0;                               // that one denoising step reads
  std::array<std::uint64_t, kWeightTypes> format_parameters{};  // by WeightType
};

struct Weights {
  frt_weight patch{};                   // (vision_width, patch_columns)
  const float* patch_addend = nullptr;  // (cells, vision_width): position + bias
  std::vector<VisionLayer> vision;
  const float *vision_norm = nullptr, *vision_norm_bias = nullptr;
  frt_weight projector{};  // (width, vision_width)
  const float* projector_bias = nullptr;
  frt_weight embedding{};  // (vocabulary, width)
  std::vector<GemmaLayer> prefix, expert;
  const float *in_weight = nullptr, *in_bias = nullptr;    // (expert_width, action_dim)
  const float *out_weight = nullptr, *out_bias = nullptr;  // (action_dim, expert_width)
  WeightTotals totals;
  WeightFormats formats;
  bool fp8 = false;  // of the layers
  std::unique_ptr<models::DeviceMemory> memory;
};

// One stored matrix.
struct MatrixName {
  std::string name;  // with ".weight"
  std::int64_t rows, columns;
};

// Where weights come from. Names are openpi's, without "paligemma_with_expert." where that would
// be their begin: "vision.", "projector.", "prefix.", "expert." stand for the long prefixes.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Whether the file holds `name` as F32 (or F16), so that f32 activations want it so.
  virtual bool is_wide(const std::string& name) const = 0;
  // Values of any tensor, as f32.
  virtual std::vector<float> values(const std::string& name,
                                    std::vector<std::int64_t> shape) const = 0;
  // The largest magnitude of a matrix.
  virtual float largest(const MatrixName& matrix) const = 0;
  // Before the first matrix of `memory`.
  virtual void prepare(models::DeviceMemory& memory) = 0;
  // Puts a matrix as `dtype` (f32, bf16) at `target` in `memory`, some time before its finish().
  virtual void place(const MatrixName& matrix, frt_dtype dtype, models::DeviceMemory& memory,
                     std::byte* target) = 0;
  // {name, SHA-256} of every weight file; slow on the first call.
  virtual FileDigests digests() const = 0;
  // Around everything else: the first and the last report of the phase "weights".
  virtual void begin(std::uint64_t bytes) = 0;
  virtual void end() = 0;
};

// Assembles all weights for activations of type `activation`; FP8 with a calibration.  [setup]
Weights build_weights(const Config& config, frt_dtype activation, const Calibration* calibration,
                      WeightSource& source, std::unique_ptr<models::DeviceMemory> memory);

// Device memory that build_weights takes, or a little less.
std::uint64_t weight_bytes(const Config& config, frt_dtype activation, bool fp8);

std::string describe_formats(const WeightTotals& totals);

}  // namespace frt::pi05
