// SPDX-License-Identifier: Apache-2.0
// Animation by SMIL: every point has the positions of its path as the values of cx and cy, and its
// trail is uncovered as far as it has come. All episodes take as long as the longest one; a short
// one waits at its end. Where nothing is animated, the ends are shown.
#include "examples/reach/picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "robot/control/latency.hpp"

namespace frt::host {
namespace {

constexpr int kColumns = 6, kCell = 172, kGap = 16, kTop = 64, kCaption = 24;
constexpr int kBars = 48, kBarHeight = 46, kStrip = 104;
constexpr double kSecondsPerTick = 0.12;
constexpr const char* kGood = "#4fb36a";
constexpr const char* kBad = "#d05a50";
constexpr const char* kDim = "#8b919c";

std::string color_of(uint32_t disc) {
  const auto& color = ReachWorld::colors()[disc];
  return fmt::format("rgb({},{},{})", color[0], color[1], color[2]);
}

// How much of the path has been walked at each frame, 0 .. 1.
std::vector<double> progress(const std::vector<Point>& path) {
  std::vector<double> walked = {0};
  for (std::size_t i = 1; i < path.size(); ++i) {
    walked.push_back(walked.back() +
                     std::hypot(path[i].x - path[i - 1].x, path[i].y - path[i - 1].y));
  }
  const double whole = std::max(walked.back(), 1e-9);
  for (double& value : walked) value /= whole;
  return walked;
}

std::string animate(const char* attribute, const std::string& values, double seconds) {
  return fmt::format(
      "<animate attributeName=\"{}\" dur=\"{:.2f}s\" repeatCount=\"indefinite\" values=\"{}\"/>",
      attribute, seconds, values);
}

std::string moving_point(const std::vector<Point>& path, std::size_t frames) {
  const std::vector<double> walked = progress(path);
  std::string points, xs, ys, hidden;
  for (std::size_t frame = 0; frame < frames; ++frame) {
    const std::size_t at = std::min(frame, path.size() - 1);
    if (frame < path.size()) points += fmt::format("{:.3f},{:.3f} ", path[at].x, path[at].y);
    xs += fmt::format("{}{:.3f}", frame ? ";" : "", path[at].x);
    ys += fmt::format("{}{:.3f}", frame ? ";" : "", path[at].y);
    hidden += fmt::format("{}{:.3f}", frame ? ";" : "", 1 - walked[at]);
  }
  const double seconds = kSecondsPerTick * static_cast<double>(frames);
  return fmt::format(
      "<circle cx=\"{:.3f}\" cy=\"{:.3f}\" r=\"{}\" fill=\"none\" stroke=\"#ffffff\" "
      "stroke-opacity=\"0.35\" stroke-width=\"0.01\"/>\n"
      "<polyline points=\"{}\" pathLength=\"1\" fill=\"none\" stroke=\"#ffffff\" "
      "stroke-opacity=\"0.55\" stroke-width=\"0.016\" stroke-linejoin=\"round\" "
      "stroke-dasharray=\"1\">{}</polyline>\n"
      "<circle cx=\"{:.3f}\" cy=\"{:.3f}\" r=\"{}\" fill=\"#f0f0f0\">{}{}</circle>\n",
      path.front().x, path.front().y, ReachWorld::kPointRadius, points,
      animate("stroke-dashoffset", hidden, seconds), path.back().x, path.back().y,
      ReachWorld::kPointRadius, animate("cx", xs, seconds), animate("cy", ys, seconds));
}

std::string cell(const ReachTrace& trace, int x, int y, std::size_t frames) {
  const char* verdict = trace.success ? kGood : kBad;
  std::string out = fmt::format(
      "<g transform=\"translate({},{}) scale({})\">"
      "<rect width=\"1\" height=\"1\" rx=\"0.04\" fill=\"#181a20\" stroke=\"{}\" "
      "stroke-width=\"0.012\"/>\n",
      x, y, kCell, verdict);
  for (uint32_t disc = 0; disc < ReachWorld::kDiscs; ++disc) {
    const bool goal = disc == trace.goal;
    out += fmt::format("<circle cx=\"{:.3f}\" cy=\"{:.3f}\" r=\"{}\" fill=\"{}\"{}/>\n",
                       trace.discs[disc].x, trace.discs[disc].y, ReachWorld::kDiscRadius,
                       color_of(disc), goal ? " stroke=\"#fff\" stroke-width=\"0.02\"" : "");
  }
  if (!trace.path.empty()) out += moving_point(trace.path, frames);
  return out + fmt::format(
                   "</g>\n<text x=\"{}\" y=\"{}\" fill=\"{}\" font-size=\"11\">{}</text>"
                   "<text x=\"{}\" y=\"{}\" fill=\"{}\" font-size=\"11\" text-anchor=\"end\">{}"
                   "</text>\n",
                   x + 1, y + kCell + 17, color_of(trace.goal),
                   ReachWorld::instruction_of(trace.goal), x + kCell - 1, y + kCell + 17, verdict,
                   trace.success ? fmt::format("{} ticks", trace.path.size() - 1) : "missed");
}

// Bars over [fastest, p99]; what took longer is in the last one.
std::string histogram_strip(const std::vector<double>& values, int y, int width) {
  LatencySeries series(values.size());
  for (const double value : values) series.add(value);
  const LatencySummary summary = series.summary();  // as the console says it
  const double low = std::ranges::min(values), high = summary.p99;
  const double step = std::max((high - low) / kBars, 1e-9);
  std::array<std::size_t, kBars> count{};
  for (const double value : values) {
    ++count[std::min(static_cast<std::size_t>((value - low) / step), std::size_t{kBars - 1})];
  }
  const std::size_t most = *std::ranges::max_element(count);
  const double bar = static_cast<double>(width) / kBars;
  std::string out = fmt::format(
      "<text x=\"{}\" y=\"{}\" fill=\"{}\" font-size=\"12\">how long a chunk of actions took, {} "
      "chunks</text>\n",
      kGap, y + 14, kDim, values.size());
  for (int i = 0; i < kBars; ++i) {
    const double height = kBarHeight * double(count[static_cast<std::size_t>(i)]) / double(most);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#5b8def\"/>\n",
        kGap + i * bar, y + 22 + kBarHeight - height, bar - 1, height);
  }
  return out + fmt::format(
                   "<text x=\"{0}\" y=\"{1}\" fill=\"{2}\" font-size=\"12\">{3:.2f} ms</text>"
                   "<text x=\"{4}\" y=\"{1}\" fill=\"{2}\" font-size=\"12\" "
                   "text-anchor=\"end\">{5:.2f} ms (p99), longest {6:.2f} ms</text>\n",
                   kGap, y + 22 + kBarHeight + 16, kDim, low, kGap + width, high, summary.max);
}

}  // namespace

std::string reach_svg(const std::vector<ReachTrace>& traces, const std::string& title,
                      const std::string& line, std::span<const double> chunk_ms) {
  const int count = static_cast<int>(traces.size());
  const int rows = (count + kColumns - 1) / kColumns;
  const int columns = std::clamp(count, 3, kColumns);
  const int width = columns * (kCell + kGap) + kGap;
  const int strip = kTop + rows * (kCell + kCaption + kGap);
  const int height = strip + (chunk_ms.empty() ? 0 : kStrip);
  std::size_t longest = 1;
  for (const ReachTrace& trace : traces) longest = std::max(longest, trace.path.size());
  const std::size_t frames = longest + 6;  // a moment at the end
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#101216\"/>\n"
      "<text x=\"{2}\" y=\"28\" fill=\"#e6e6e6\" font-size=\"17\">{3}</text>\n"
      "<text x=\"{2}\" y=\"48\" fill=\"{4}\" font-size=\"12\">{5}</text>\n",
      width, height, kGap, title, kDim, line);
  for (int i = 0; i < count; ++i) {
    out += cell(traces[static_cast<std::size_t>(i)], kGap + i % kColumns * (kCell + kGap),
                kTop + i / kColumns * (kCell + kCaption + kGap), frames);
  }
  if (!chunk_ms.empty()) {
    out += histogram_strip({chunk_ms.begin(), chunk_ms.end()}, strip, width - 2 * kGap);
  }
  return out + "</svg>\n";
}

void ReachPicture::add_episode() {
  if (traces_.size() >= kEpisodes) return;
  traces_.push_back({world_.discs(), world_.goal(), world_.succeeded(), world_.path()});
}

std::string ReachPicture::svg(const std::string& title, const std::string& line,
                              std::span<const double> chunk_ms) const {
  return reach_svg(traces_, title, line, chunk_ms);
}

std::unique_ptr<EpisodePicture> ReachWorld::picture() const {
  return std::make_unique<ReachPicture>(*this);
}

}  // namespace frt::host
