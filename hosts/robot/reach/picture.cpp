// SPDX-License-Identifier: Apache-2.0
// Animation by SMIL: every point has the positions of its path as the values of cx and cy. All
// episodes take as long as the longest one; a short one waits at its end.
#include "robot/reach/picture.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace frt::host {

std::string reach_svg(const std::vector<ReachTrace>& traces, const std::string& title) {
  constexpr int kColumns = 6, kCell = 120, kGap = 12, kTop = 34;
  constexpr double kSecondsPerTick = 0.12;
  const int rows = static_cast<int>((traces.size() + kColumns - 1) / kColumns);
  const int columns = std::min<int>(kColumns, static_cast<int>(traces.size()));
  const int width = std::max(columns * (kCell + kGap) + kGap, 420);
  const int height = rows * (kCell + kGap) + kGap + kTop;
  std::size_t longest = 1;
  for (const ReachTrace& trace : traces) longest = std::max(longest, trace.path.size());
  const std::size_t frames = longest + 6;  // a moment at the end
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#101216\"/>\n"
      "<text x=\"{2}\" y=\"22\" fill=\"#e6e6e6\" font-size=\"14\">{3}</text>\n",
      width, height, kGap, title);
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const ReachTrace& trace = traces[i];
    const int x = kGap + static_cast<int>(i % kColumns) * (kCell + kGap);
    const int y = kTop + kGap / 2 + static_cast<int>(i / kColumns) * (kCell + kGap);
    out += fmt::format(
        "<g transform=\"translate({},{}) scale({})\">"
        "<rect width=\"1\" height=\"1\" rx=\"0.04\" fill=\"#181a20\" stroke=\"{}\" "
        "stroke-width=\"0.015\"/>\n",
        x, y, kCell, trace.success ? "#3c8c50" : "#a04040");
    for (uint32_t disc = 0; disc < ReachWorld::kDiscs; ++disc) {
      const auto& color = ReachWorld::colors()[disc];
      out += fmt::format(
          "<circle cx=\"{:.3f}\" cy=\"{:.3f}\" r=\"{}\" fill=\"rgb({},{},{})\"{}/>\n",
          trace.discs[disc].x, trace.discs[disc].y, ReachWorld::kDiscRadius, color[0], color[1],
          color[2], disc == trace.goal ? " stroke=\"#fff\" stroke-width=\"0.02\"" : "");
    }
    std::string points, xs, ys;
    for (std::size_t frame = 0; frame < frames && !trace.path.empty(); ++frame) {
      const Point at = trace.path[std::min(frame, trace.path.size() - 1)];
      if (frame < trace.path.size()) points += fmt::format("{:.3f},{:.3f} ", at.x, at.y);
      xs += fmt::format("{}{:.3f}", frame ? ";" : "", at.x);
      ys += fmt::format("{}{:.3f}", frame ? ";" : "", at.y);
    }
    const double seconds = kSecondsPerTick * static_cast<double>(frames);
    out += fmt::format(
        "<polyline points=\"{0}\" fill=\"none\" stroke=\"#ffffff\" stroke-opacity=\"0.3\" "
        "stroke-width=\"0.012\"/>\n<circle r=\"{1}\" fill=\"#f0f0f0\">"
        "<animate attributeName=\"cx\" dur=\"{2:.2f}s\" repeatCount=\"indefinite\" "
        "values=\"{3}\"/><animate attributeName=\"cy\" dur=\"{2:.2f}s\" "
        "repeatCount=\"indefinite\" values=\"{4}\"/></circle></g>\n",
        points, ReachWorld::kPointRadius, seconds, xs, ys);
  }
  return out + "</svg>\n";
}

}  // namespace frt::host
