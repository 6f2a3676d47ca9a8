// SPDX-License-Identifier: Apache-2.0
#include "robot/record/episode_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "robot/control/latency.hpp"

namespace frt::host {
namespace {

constexpr int kColumns = 6, kCell = 172, kGap = 16, kTop = 64, kCaption = 24;
constexpr int kBars = 48, kBarHeight = 46, kStrip = 104;
constexpr const char* kText = "#e6e6e6";
constexpr const char* kGood = "#4fb36a";
constexpr const char* kBad = "#d05a50";
constexpr const char* kDim = "#8b919c";

// An instruction is a text of an environment, no markup.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return out;
}

std::string cell(const DrawnEpisode& episode, int x, int y) {
  const char* verdict = episode.success ? kGood : kBad;
  return fmt::format(
             "<g transform=\"translate({},{}) scale({})\">"
             "<rect width=\"1\" height=\"1\" rx=\"0.04\" fill=\"#181a20\" stroke=\"{}\" "
             "stroke-width=\"0.012\"/>\n",
             x, y, kCell, verdict) +
         episode.drawing +
         fmt::format(
             "</g>\n<text x=\"{}\" y=\"{}\" fill=\"{}\" font-size=\"11\">{}</text>"
             "<text x=\"{}\" y=\"{}\" fill=\"{}\" font-size=\"11\" text-anchor=\"end\">{}"
             "</text>\n",
             x + 1, y + kCell + 17, kText, escaped(episode.instruction), x + kCell - 1,
             y + kCell + 17, verdict,
             episode.success ? fmt::format("{} ticks", episode.ticks) : "missed");
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

uint32_t drawing_frames(std::size_t ticks) {
  return static_cast<uint32_t>(ticks) + 1 + 6;  // where it began, and a moment at the end
}

std::string episodes_svg(const std::vector<DrawnEpisode>& episodes, const std::string& title,
                         const std::string& line, std::span<const double> chunk_ms) {
  const int count = static_cast<int>(episodes.size());
  const int rows = (count + kColumns - 1) / kColumns;
  const int columns = std::clamp(count, 3, kColumns);
  const int width = columns * (kCell + kGap) + kGap;
  const int strip = kTop + rows * (kCell + kCaption + kGap);
  const int height = strip + (chunk_ms.empty() ? 0 : kStrip);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#101216\"/>\n"
      "<text x=\"{2}\" y=\"28\" fill=\"#e6e6e6\" font-size=\"17\">{3}</text>\n"
      "<text x=\"{2}\" y=\"48\" fill=\"{4}\" font-size=\"12\">{5}</text>\n",
      width, height, kGap, title, kDim, line);
  for (int i = 0; i < count; ++i) {
    out += cell(episodes[static_cast<std::size_t>(i)], kGap + i % kColumns * (kCell + kGap),
                kTop + i / kColumns * (kCell + kCaption + kGap));
  }
  if (!chunk_ms.empty()) {
    out += histogram_strip({chunk_ms.begin(), chunk_ms.end()}, strip, width - 2 * kGap);
  }
  return out + "</svg>\n";
}

}  // namespace frt::host
