// SPDX-License-Identifier: Apache-2.0
#include "bench/svg_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace frt::host {
namespace {

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 80, kRight = 24, kTop = 48, kBottom = 60;
constexpr double kTitleLine = 20;        // between the lines of a title
constexpr std::size_t kTitleBytes = 80;  // of a line, 15 units high
constexpr std::array kColors = {"#b4532a", "#1f6f8b", "#5b7f2b", "#7a4d9a"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

std::string label(double x, double y, const char* anchor, const std::string& text, int size = 12) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", x, y,
      anchor, size, escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* color) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
      y2, color);
}

// `text` in lines of at most `most` bytes, where there are spaces to cut it at.
std::vector<std::string> wrapped(const std::string& text, std::size_t most) {
  std::vector<std::string> lines(1);
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > most) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return lines;
}

// One logarithmic axis.
struct Axis {
  double low = 1, high = 10;  // values at its ends
  double from = 0, to = 1;    // where they are drawn
  double at(double value) const {
    return from + (to - from) * std::log(value / low) / std::log(high / low);
  }
};

}  // namespace

std::string svg_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     const std::vector<std::pair<double, std::string>>& x_labels,
                     const std::vector<SvgSeries>& series) {
  Axis x{1, 10, kLeft, kWidth - kRight};
  const std::vector<std::string> title_lines = wrapped(title, kTitleBytes);
  const double top = kTop + kTitleLine * static_cast<double>(title_lines.size() - 1);
  Axis y{1, 10, kHeight - kBottom, top};
  if (!x_labels.empty()) {
    x.low = x_labels.front().first / 1.1;
    x.high = x_labels.back().first * 1.1;
  }
  double least = 0, most = 0;
  for (const SvgSeries& each : series) {
    for (const auto& [at, value] : each.points) {
      least = least == 0 ? value : std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (most > 0) {
    y.low = std::pow(10, std::floor(std::log10(least)));
    y.high = std::pow(10, std::floor(std::log10(most)) + 1);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
      "font-family=\"sans-serif\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n",
      kWidth, kHeight);
  for (std::size_t i = 0; i < title_lines.size(); ++i) {
    svg +=
        label(kWidth / 2, 26 + kTitleLine * static_cast<double>(i), "middle", title_lines[i], 15);
  }
  const bool few = y.high <= y.low * 101;  // decades: room for marks between them
  for (double decade = y.low; decade <= y.high * 1.001; decade *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = decade * factor;
      if (value > y.high * 1.001 || (factor != 1 && !few)) continue;
      svg += line(kLeft, y.at(value), kWidth - kRight, y.at(value), "#ddd");
      svg += label(kLeft - 8, y.at(value) + 4, "end", fmt::format("{:g}", value));
    }
  }
  for (const auto& [value, text] : x_labels) {
    svg += line(x.at(value), top, x.at(value), kHeight - kBottom, "#eee");
    svg += label(x.at(value), kHeight - kBottom + 18, "middle", text);
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", x_name);
  svg += fmt::format("<g transform=\"translate(20 {:.1f}) rotate(-90)\">{}</g>\n",
                     (top + kHeight - kBottom) / 2, label(0, 0, "middle", y_name));
  double legend = top + 8;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    const char* color = kColors[i % kColors.size()];
    std::string path;
    for (const auto& [at, value] : series[i].points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.at(at), y.at(value));
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x.at(at),
                         y.at(value), color);
    }
    svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path,
                       color);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"4\" fill=\"{}\"/>\n",
                       kLeft + 12, legend, color);
    svg += label(kLeft + 32, legend + 6, "start", series[i].name);
    legend += 18;
  }
  return svg + "</svg>\n";
}

}  // namespace frt::host
