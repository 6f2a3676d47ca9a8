// SPDX-License-Identifier: Apache-2.0
// episode_svg.hpp - episodes side by side as one animated SVG file, for any browser.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frt::host {

struct DrawnEpisode {
  std::string drawing;  // SVG elements in the unit square
  std::string instruction;
  bool success = false;
  std::size_t ticks = 0;
};

// How long drawings of episodes that have at most `ticks` ticks move: a moment longer than the
// longest.  [any]
uint32_t drawing_frames(std::size_t ticks);

// Under a title and a line of text (no markup); below the episodes a histogram of how long a chunk
// took.  [any]
std::string episodes_svg(const std::vector<DrawnEpisode>& episodes, const std::string& title,
                         const std::string& line, std::span<const double> chunk_ms);

}  // namespace frt::host
