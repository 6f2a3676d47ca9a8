// SPDX-License-Identifier: Apache-2.0
// checkpoint_source.hpp - weights from safetensors files, in both public layouts:
//
//   prefix      "model." before every name, or not
//   embedding   language_model.embed_tokens, else paligemma.lm_head (they are tied; files keep one)
//   time        time_mlp_{in,out}, or LeRobot's older action_time_mlp_{in,out}
//
// Refused with the reason: pi0 checkpoints (no condition in the expert's norms) and checkpoints
// with proprioceptive memory. Errors name tensor, file, expected and found.
#pragma once

#include <cstdint>
#include <frt/models/safetensors.hpp>
#include <frt/plugin.hpp>
#include <string>
#include <vector>

#include "weights.hpp"

namespace frt::pi05 {

class CheckpointSource final : public WeightSource {
 public:
  // Keeps the files mapped.  [setup]
  CheckpointSource(const Host& host, models::Checkpoint checkpoint);

  bool is_wide(const std::string& name) const override;
  std::vector<float> values(const std::string& name,
                            std::vector<std::int64_t> shape) const override;
  float largest(const MatrixName& matrix) const override;
  void prepare(models::DeviceMemory& memory) override;
  void place(const MatrixName& matrix, frt_dtype dtype, models::DeviceMemory& memory,
             std::byte* target) override;
  FileDigests digests() const override { return checkpoint_.digests(); }
  void begin(std::uint64_t bytes) override;
  void end() override;

 private:
  std::string stored_name(const std::string& name) const;
  const models::TensorView& find(const std::string& name,
                                 const std::vector<std::int64_t>& shape) const;

  Host host_;
  models::Checkpoint checkpoint_;
  std::string root_;       // "model." or nothing
  std::string embedding_;  // stored name
  std::string time_;       // "time_mlp_" or "action_time_mlp_"
  std::uint64_t total_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace frt::pi05
