// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/normaliser.hpp>

namespace frt::models {
namespace {

constexpr double kOpenpiEpsilon = 1e-6;
constexpr float kLerobotEpsilon = 1e-8f;

float width_of(double a, double b) {
  const float width = static_cast<float>(b) - static_cast<float>(a);
  return width == 0 ? kLerobotEpsilon : width;
}

}  // namespace

Normaliser::Normaliser(NormKind kind, NormStyle style, const NormStatistics& statistics,
                       const std::string& feature)
    : kind_(kind), style_(style) {
  const char* names = "";
  switch (kind) {
    case NormKind::kIdentity:
      return;
    case NormKind::kQuantile:
      names = "q01 and q99";
      a_ = statistics.q01;
      b_ = statistics.q99;
      break;
    case NormKind::kMeanStd:
      names = "mean and std";
      a_ = statistics.mean;
      b_ = statistics.std;
      break;
    case NormKind::kMinMax:
      names = "min and max";
      a_ = statistics.min;
      b_ = statistics.max;
      break;
  }
  if (a_.empty() || b_.empty()) {
    throw Error(FRT_ERR_NOT_FOUND, "the statistics of " + feature + " lack " + names +
                                       ", which this policy's normalisation needs");
  }
  const auto finite = [](double value) { return std::isfinite(value); };
  if (a_.size() != b_.size() || !std::all_of(a_.begin(), a_.end(), finite) ||
      !std::all_of(b_.begin(), b_.end(), finite)) {
    throw Error(FRT_ERR_FORMAT, "the statistics of " + feature + ": " + names +
                                    " must be finite and of one length, found " +
                                    std::to_string(a_.size()) + " and " +
                                    std::to_string(b_.size()) + " values");
  }
}

void Normaliser::forward(std::span<double> row) const {
  const std::size_t count = std::min(row.size(), a_.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (style_ == NormStyle::kOpenpi) {
      row[i] = kind_ == NormKind::kMeanStd
                   ? (row[i] - a_[i]) / (b_[i] + kOpenpiEpsilon)
                   : (row[i] - a_[i]) / (b_[i] - a_[i] + kOpenpiEpsilon) * 2.0 - 1.0;
      continue;
    }
    const auto x = static_cast<float>(row[i]);
    const auto a = static_cast<float>(a_[i]);
    row[i] = static_cast<double>(kind_ == NormKind::kMeanStd
                                     ? (x - a) / (static_cast<float>(b_[i]) + kLerobotEpsilon)
                                     : 2.0f * (x - a) / width_of(a_[i], b_[i]) - 1.0f);
  }
}

void Normaliser::inverse(std::span<double> row) const {
  const std::size_t count = std::min(row.size(), a_.size());
  const bool mean_std = kind_ == NormKind::kMeanStd;
  for (std::size_t i = 0; i < count; ++i) {
    if (style_ == NormStyle::kOpenpi) {
      row[i] = mean_std ? row[i] * (b_[i] + kOpenpiEpsilon) + a_[i]
                        : (row[i] + 1.0) / 2.0 * (b_[i] - a_[i] + kOpenpiEpsilon) + a_[i];
      continue;
    }
    const auto x = static_cast<float>(row[i]);
    const auto a = static_cast<float>(a_[i]);
    row[i] = static_cast<double>(mean_std ? x * static_cast<float>(b_[i]) + a
                                          : (x + 1.0f) * width_of(a_[i], b_[i]) / 2.0f + a);
  }
  if (style_ != NormStyle::kOpenpi || !mean_std) return;
  for (std::size_t i = count; i < row.size(); ++i) row[i] *= 1 + kOpenpiEpsilon;
}

}  // namespace frt::models
