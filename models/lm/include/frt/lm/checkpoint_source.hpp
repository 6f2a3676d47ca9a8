// SPDX-License-Identifier: Apache-2.0
// frt/lm/checkpoint_source.hpp - weights from safetensors files, in every layout that is in use:
//
//   trunk prefix   model.language_model. | language_model.model. | model.
//   experts        fused three-dimensional tensors | one by one (stacked on the device)
//   draft head     mtp.* in the main files, in a sidecar, or absent
//   formats        per matrix, by what is there (frt/models/linear_weight.hpp)
//
// Vision tensors and activation scales are ignored; what is left over is reported in one warning.
// Errors name tensor, file, expected and found.
#pragma once

#include <cstdint>
#include <frt/models/linear_weight.hpp>
#include <frt/models/safetensors.hpp>
#include <frt/plugin.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <frt/lm/weights.hpp>

namespace frt::lm {

class CheckpointSource final : public WeightSource {
 public:
  // [setup]
  CheckpointSource(const Host& host, models::Checkpoint checkpoint, const Config& config,
                   DeviceMemory& memory);

  bool has_mtp() const override;
  std::uint64_t device_bytes(bool with_mtp) const override;
  bool only_f32(bool with_mtp) const override;
  void begin(bool with_mtp) override;
  void end() override;  // warns about tensors that nobody asked for; FRT_ERR_IO if a file changed
  frt_weight matrix(const std::string& base, std::int64_t rows, std::int64_t columns,
                    Role role) override;
  void experts(const std::string& prefix, const Config& config, MixtureWeights& weights) override;
  std::vector<float> values(const std::string& name, std::vector<std::int64_t> shape,
                            Role role) override;
  void cache_scales(const std::string& prefix, AttentionWeights& weights) override;
  frt_weight embedding(const Config& config) override;
  frt_weight head(const Config& config, const frt_weight& table) override;

 private:
  // Official name -> name in this checkpoint.
  std::string stored_name(const std::string& name) const;
  models::LinearWeight find(const std::string& base, std::int64_t rows, std::int64_t columns);
  frt_weight place(const models::LinearWeight& found);
  const void* resident(const models::TensorView& tensor);
  void fused_experts(const std::string& prefix, const Config& config, MixtureWeights& weights);
  frt_expert_weight stacked_experts(const std::string& prefix, const char* part,
                                    const Config& config, std::int64_t rows, std::int64_t columns);
  void take(const models::TensorView& tensor);
  bool wanted(std::string_view name, bool with_mtp) const;

  Host host_;
  models::Checkpoint checkpoint_;
  DeviceMemory& memory_;
  models::BlockShape block_;
  std::string trunk_;  // prefix
  std::string mtp_;    // prefix
  std::string head_;   // base of lm_head
  bool with_mtp_ = false;
  std::unordered_set<std::string> used_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace frt::lm
