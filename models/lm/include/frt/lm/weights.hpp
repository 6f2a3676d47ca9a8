// SPDX-License-Identifier: Apache-2.0
// frt/lm/weights.hpp - the weights of one decoder in device memory, in the form the operators take,
// and the source they come from: a checkpoint or a synthetic one. WeightBuilder assembles them. An
// architecture with more than this derives its own Weights.
//
// Pointers are device memory owned by `Weights`.
#pragma once

#include <frt/kernels.h>
#include <frt/ops/moe.h>
#include <frt/weights.hpp>

#include <array>
#include <cstdint>
#include <frt/lm/config.hpp>
#include <frt/lm/tensors.hpp>
#include <frt/models/device_memory.hpp>
#include <memory>
#include <string>
#include <vector>

namespace frt::lm {

using models::DeviceMemory;
using models::UploadOptions;

struct AttentionWeights {
  frt_weight query{};  // (heads * [query | gate], hidden)
  frt_weight key{}, value{}, output{};
  const float* query_bias = nullptr;     // (heads * head_dim); null: no biases
  const float* key_bias = nullptr;       // (kv width)
  const float* value_bias = nullptr;     // (kv width)
  const float* output_bias = nullptr;    // (hidden); null: none
  const float* query_norm = nullptr;     // (head_dim); null: no norm
  const float* key_norm = nullptr;       // (head_dim)
  float key_scale = 1, value_scale = 1;  // of FP8 rows
};

struct DenseWeights {
  frt_weight gate{}, up{}, down{};
  const float* gate_bias = nullptr;  // (width); null: no biases
  const float* up_bias = nullptr;    // (width)
  const float* down_bias = nullptr;  // (hidden)
};

struct MixtureWeights {
  frt_weight router{};
  frt_expert_weight gate{}, up{}, down{};
  DenseWeights shared;        // rows 0: no shared expert
  frt_weight shared_scale{};  // (1, hidden)
};

struct LayerWeights {
  const float* input_norm = nullptr;  // (hidden)
  const float* post_norm = nullptr;   // (hidden)
  AttentionWeights attention;
  DenseWeights dense;
  MixtureWeights mixture;
};

// What a step reads, for summaries and benchmarks.
struct WeightTotals {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;         // of matrices, as stored
  std::uint64_t decode_bytes = 0;  // that one decoded token reads
  std::uint64_t expert_bytes = 0;  // of these, of one routed expert of every layer
  std::uint64_t token_flops = 0;   // of products per prefilled token, without the head
  std::array<std::uint64_t, kWeightTypes> format_parameters{};  // by WeightType
};

struct Weights {
  Weights() = default;
  virtual ~Weights() = default;
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // Whether the draft head was loaded, too.
  virtual bool has_draft() const { return false; }

  frt_weight embedding{}, head{};
  frt_weight draft_head{};                  // the first rows of `head`: what drafts are chosen from
  const float* norm = nullptr;              // (hidden)
  const float* rope_frequencies = nullptr;  // (rotary_dim / 2)
  std::vector<LayerWeights> layers;
  WeightTotals totals;
  WeightFormats formats;

  std::unique_ptr<DeviceMemory> memory;
};

// Where weights come from. Names are official ones without the trunk's prefix: "layers.3...",
// "norm.weight", "lm_head", "mtp.fc". Matrices are named without ".weight".  [setup]
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual bool has_mtp() const = 0;
  // Device memory that everything takes, to the last alignment gap at most too much.
  virtual std::uint64_t device_bytes(bool with_mtp) const = 0;
  // True if all matrices will be kWeightF32.
  virtual bool only_f32(bool with_mtp) const = 0;
  // Around everything else: the first and the last report of the phase "weights".
  virtual void begin(bool with_mtp) = 0;
  virtual void end() = 0;
  // A matrix in device memory.
  virtual frt_weight matrix(const std::string& base, std::int64_t rows, std::int64_t columns,
                            Role role) = 0;
  // The matrices `prefix`experts.*: gate, up, down of every expert.
  virtual void experts(const std::string& prefix, const Config& config,
                       MixtureWeights& weights) = 0;
  // The values of a small tensor.
  virtual std::vector<float> values(const std::string& name, std::vector<std::int64_t> shape,
                                    Role role) = 0;
  // FP8 scales of keys and values; 1 if there are none.
  virtual void cache_scales(const std::string& prefix, AttentionWeights& weights) = 0;
  // The table, and lm_head where the model has its own (otherwise a copy of the table).
  virtual frt_weight embedding(const Config& config) = 0;
  virtual frt_weight head(const Config& config, const frt_weight& table) = 0;
};

// Bytes of a matrix as stored, scales included.
std::uint64_t weight_bytes(const frt_weight& weight);

// For people: "nvfp4 61 %, fp8 31 %, bf16 8 %".
std::string describe_formats(const WeightTotals& totals);

}  // namespace frt::lm
