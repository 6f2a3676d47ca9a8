// SPDX-License-Identifier: Apache-2.0
// synthetic_source.hpp - checkpoints that consist of a name only, with weights from nothing:
//
//   synthetic:pi05[?key=value&key=value...]
//
// Keys: seed, horizon, steps, and every dimension of dim_names(). Matrices are filled on the device
// by frt.fill_uniform, small tensors here with the same formula, so that the full size starts
// without a file. The same seed gives the same weights on every backend.
#pragma once

#include <frt/ops/elementwise.h>

#include <cstdint>
#include <frt/plugin.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "weights.hpp"

namespace frt::pi05 {

struct Synthetic {
  Config config;
  std::uint64_t seed = 1;
};

bool is_synthetic(std::string_view checkpoint);
Synthetic parse_synthetic(std::string_view checkpoint);

class SyntheticSource final : public WeightSource {
 public:
  // Finds the fill operator.  [setup]
  SyntheticSource(const Host& host, const Synthetic& synthetic, const Context& context);

  bool is_wide(const std::string&) const override { return false; }
  std::vector<float> values(const std::string& name,
                            std::vector<std::int64_t> shape) const override;
  float largest(const MatrixName& matrix) const override;
  void prepare(models::DeviceMemory&) override {}
  void place(const MatrixName& matrix, frt_dtype dtype, models::DeviceMemory& memory,
             std::byte* target) override;
  FileDigests digests() const override;
  void begin(std::uint64_t bytes) override;
  void end() override;

 private:
  std::uint64_t seed_of(const std::string& name) const;

  Host host_;
  std::uint64_t seed_;
  Dims dims_;
  Kernel<frt_fill_uniform_args> fill_;
  std::uint64_t total_bytes_ = 0, done_bytes_ = 0;
};

}  // namespace frt::pi05
