// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/selftest_routing.hpp>

#include <algorithm>

namespace frt::lm {
namespace {

std::size_t place_of(const RoutedRows& routed, std::int32_t position) {
  const auto found = std::find(routed.rows.begin(), routed.rows.end(), position);
  return static_cast<std::size_t>(found - routed.rows.begin());
}

}  // namespace

std::size_t GoldenRouting::layers() const {
  const std::size_t row = top_k_ * golden_.rows.size();
  return row > 0 && golden_.ids.size() % row == 0 ? golden_.ids.size() / row : 0;
}

std::vector<std::int32_t> GoldenRouting::positions(std::int32_t position) const {
  std::vector<std::int32_t> known;
  for (std::int32_t p = std::max(0, position - reach_); p <= position; ++p) {
    if (layers() > 0 && place_of(golden_, p) < golden_.rows.size()) known.push_back(p);
  }
  return known;
}

Routing GoldenRouting::of(std::int32_t position, std::size_t layers, const RoutedRows& run) const {
  const std::size_t row = run.rows.size();
  if (this->layers() == 0 || run.ids.size() != this->layers() * row * top_k_) {
    return Routing::kUnknown;
  }
  bool known = true;
  for (std::int32_t p = std::max(0, position - reach_); p <= position; ++p) {
    const std::size_t mine = place_of(run, p), golden = place_of(golden_, p);
    if (mine == row || golden == golden_.rows.size()) {
      known = false;
      continue;
    }
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const auto found = std::span(run.ids).subspan((layer * row + mine) * top_k_, top_k_);
      const auto expected =
          std::span(golden_.ids).subspan((layer * golden_.rows.size() + golden) * top_k_, top_k_);
      if (!std::is_permutation(found.begin(), found.end(), expected.begin(), expected.end())) {
        return Routing::kOther;
      }
    }
  }
  return known ? Routing::kSame : Routing::kUnknown;
}

std::vector<Routing> GoldenRouting::each_layer(const RoutedRows& run, std::size_t first) const {
  std::vector<Routing> all;
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    for (const std::int32_t position : run.rows) all.push_back(of(position, layer + first, run));
  }
  return all;
}

std::vector<Routing> GoldenRouting::at(std::span<const std::int32_t> positions,
                                       const RoutedRows& run) const {
  std::vector<Routing> all;
  if (layers() == 0) return all;
  for (const std::int32_t position : positions) all.push_back(of(position, layers(), run));
  return all;
}

}  // namespace frt::lm
