// SPDX-License-Identifier: Apache-2.0
// picture.hpp - episodes of the reaching task as one animated SVG file, for any browser.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "examples/reach/world.hpp"

namespace frt::host {

struct ReachTrace {
  std::array<Point, ReachWorld::kDiscs> discs{};
  uint32_t goal = 0;
  bool success = false;
  std::vector<Point> path;  // the point: where it began, then tick by tick
};

// The traces side by side, each repeating its path, under a title and a line of text (no markup);
// below them a histogram of how long a chunk took.
std::string reach_svg(const std::vector<ReachTrace>& traces, const std::string& title,
                      const std::string& line, std::span<const double> chunk_ms);

// The first episodes of a world.
class ReachPicture final : public EpisodePicture {
 public:
  static constexpr std::size_t kEpisodes = 12;

  explicit ReachPicture(const ReachWorld& world) : world_(world) {}
  void add_episode() override;
  std::string svg(const std::string& title, const std::string& line,
                  std::span<const double> chunk_ms) const override;

 private:
  const ReachWorld& world_;
  std::vector<ReachTrace> traces_;
};

}  // namespace frt::host
