// SPDX-License-Identifier: Apache-2.0
// frt/lm/synthetic_source.hpp - weights from nothing: large matrices are filled on the device by
// frt.fill_uniform, small tensors here with the same formula, so that any size starts without a
// file. The same seed gives the same weights on every backend.
#pragma once

#include <frt/ops/elementwise.h>

#include <cstdint>
#include <frt/lm/tensors.hpp>
#include <frt/plugin.hpp>
#include <string>
#include <vector>

#include <frt/lm/weights.hpp>

namespace frt::lm {

class SyntheticSource final : public WeightSource {
 public:
  // `tensors`: all of the model, as a checkpoint names them; experts as three-dimensional ones. The
  // configuration is borrowed. Finds the fill operator on the memory's context.  [setup]
  SyntheticSource(const Host& host, const Config& config, std::vector<Tensor> tensors,
                  Format format, std::uint64_t seed, DeviceMemory& memory);

  bool has_mtp() const override { return config_.mtp_layers > 0; }
  std::uint64_t device_bytes(bool with_mtp) const override;
  bool only_f32(bool) const override { return format_ == Format::kF32; }
  void begin(bool with_mtp) override;
  void end() override;
  frt_weight matrix(const std::string& base, std::int64_t rows, std::int64_t columns,
                    Role role) override;
  void experts(const std::string& prefix, const Config& config, MixtureWeights& weights) override;
  std::vector<float> values(const std::string& name, std::vector<std::int64_t> shape,
                            Role role) override;
  void cache_scales(const std::string&, AttentionWeights&) override {}
  frt_weight embedding(const Config& config) override;
  frt_weight head(const Config& config, const frt_weight& table) override;

 private:
  // `count` equal matrices one after another; strides as in frt_expert_weight.
  frt_expert_weight stack(const std::string& name, std::int64_t count, std::int64_t rows,
                          std::int64_t columns, Role role);
  void* filled(const std::string& name, frt_dtype dtype, std::uint64_t elements, float low,
               float high);
  struct StoredBytes {
    std::uint64_t codes = 0, scales = 0;
  };
  StoredBytes stored_bytes(const Tensor& tensor) const;
  static std::uint64_t elements(const Tensor& tensor);
  std::uint64_t seed_of(const std::string& name) const;

  Host host_;
  const Config& config_;
  std::vector<Tensor> tensors_;
  Format format_;
  std::uint64_t seed_;
  DeviceMemory& memory_;
  Kernel<frt_fill_uniform_args> fill_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;  // of the codes; scales are not counted
};

}  // namespace frt::lm
