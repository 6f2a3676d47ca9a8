// SPDX-License-Identifier: Apache-2.0
// frt/models/normaliser.hpp - robot units to the space a policy was trained in, and back, from the
// statistics of its training data; in the arithmetic of the library that trained it, since a
// dimension that never moved (q01 = q99) shows every epsilon.
//
//   openpi, f64    quantile  (x - q01) / (q99 - q01 + 1e-6) * 2 - 1
//                  mean-std  (x - mean) / (std + 1e-6)
//   LeRobot, f32   quantile  2 (x - q01) / d - 1,  d = q99 - q01, or 1e-8 where that is 0
//                  min-max   the same with min and max
//                  mean-std  (x - mean) / (std + 1e-8); back without the epsilon
//
// All member functions are [any].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frt::models {

enum class NormKind : std::uint8_t { kIdentity, kQuantile, kMeanStd, kMinMax };
enum class NormStyle : std::uint8_t { kOpenpi, kLerobot };

// Of one feature; vectors that a kind does not need may be empty.
struct NormStatistics {
  std::vector<double> mean, std, q01, q99, min, max;
};

class Normaliser {
 public:
  Normaliser() = default;
  // FRT_ERR_NOT_FOUND if `statistics` lack what `kind` needs, FRT_ERR_FORMAT for lengths that
  // differ or values that are NaN; `feature` stands for them in the message.  [setup]
  Normaliser(NormKind kind, NormStyle style, const NormStatistics& statistics,
             const std::string& feature);

  std::size_t dimensions() const { return a_.size(); }
  NormKind kind() const { return kind_; }

  // One row in place; values beyond the statistics pass, but for openpi's mean-std on the way back,
  // which scales them by 1 + 1e-6.
  void forward(std::span<double> row) const;
  void inverse(std::span<double> row) const;

 private:
  NormKind kind_ = NormKind::kIdentity;
  NormStyle style_ = NormStyle::kOpenpi;
  std::vector<double> a_, b_;  // q01 and q99, min and max, or mean and std
};

}  // namespace frt::models
