// SPDX-License-Identifier: Apache-2.0
// frt/lm/selftest_routing.hpp - which rows of a mixture of experts took the way of the golden ones:
// their value may be held to a dense model's gate, that of another row may not.
//
// A row depends on more than its own experts: the convolutions see the rows directly before it, at
// full weight. (bf16, 150 rows of 16 experts: two rows that flipped moved the next one, whose own
// experts were the golden's, to a cosine of 0.9986.) What is further back fades.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <frt/lm/selftest_checks.hpp>

namespace frt::lm {

// Experts of some positions: (layers, rows, top-k).
struct RoutedRows {
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> ids;
};

// The golden's. Without ids nothing is known of any row. `reach`: rows directly before a row that
// count with it.
class GoldenRouting {
 public:
  GoldenRouting() = default;
  GoldenRouting(RoutedRows golden, std::size_t top_k, std::int32_t reach)
      : golden_(std::move(golden)), top_k_(top_k), reach_(reach) {}

  std::size_t layers() const;
  // The position and those in its reach that the goldens know.
  std::vector<std::int32_t> positions(std::int32_t position) const;

  // How a run came to `position` through the first `layers` layers: kSame if all of it chose the
  // golden's experts, in any order; kOther if a part of it did not; else kUnknown.
  Routing of(std::int32_t position, std::size_t layers, const RoutedRows& run) const;
  // The same of a run's own rows, (layers, rows), behind or in front of each layer's experts. Empty
  // without goldens.
  std::vector<Routing> after_layers(const RoutedRows& run) const { return each_layer(run, 1); }
  std::vector<Routing> before_layers(const RoutedRows& run) const { return each_layer(run, 0); }
  // After the last layer, at any positions.
  std::vector<Routing> at(std::span<const std::int32_t> positions, const RoutedRows& run) const;

 private:
  std::vector<Routing> each_layer(const RoutedRows& run, std::size_t first) const;

  RoutedRows golden_;
  std::size_t top_k_ = 0;
  std::int32_t reach_ = 0;
};

}  // namespace frt::lm
