// SPDX-License-Identifier: Apache-2.0
// Animation by SMIL: the point has the positions of its path as the values of cx and cy, and its
// trail is uncovered as far as it has come. Where nothing is animated, the end is shown.
#include "examples/reach/drawing.hpp"

#include <frt/environment.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace reach {
namespace {

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string fixed(double value) {
  return fixed(value, 3);
}

// A radius, as short as it can be written.
std::string plain(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string color_of(uint32_t disc) {
  const auto& color = World::colors()[disc];
  return "rgb(" + std::to_string(color[0]) + "," + std::to_string(color[1]) + "," +
         std::to_string(color[2]) + ")";
}

std::string circle(Point center, double radius, const std::string& attributes) {
  return "<circle cx=\"" + fixed(center.x) + "\" cy=\"" + fixed(center.y) + "\" r=\"" +
         plain(radius) + "\" " + attributes;
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
  return std::string("<animate attributeName=\"") + attribute + "\" dur=\"" + fixed(seconds, 2) +
         "s\" repeatCount=\"indefinite\" values=\"" + values + "\"/>";
}

std::string moving_point(const std::vector<Point>& path, uint32_t frames) {
  const std::vector<double> walked = progress(path);
  std::string points, xs, ys, hidden;
  for (std::size_t frame = 0; frame < frames; ++frame) {
    const std::size_t at = std::min(frame, path.size() - 1);
    if (frame < path.size()) points += fixed(path[at].x) + "," + fixed(path[at].y) + " ";
    const char* between = frame ? ";" : "";
    xs += between + fixed(path[at].x);
    ys += between + fixed(path[at].y);
    hidden += between + fixed(1 - walked[at]);
  }
  const double seconds = FRT_DRAWING_FRAME_S * frames;
  return circle(path.front(), World::kPointRadius,
                "fill=\"none\" stroke=\"#ffffff\" stroke-opacity=\"0.35\" "
                "stroke-width=\"0.01\"/>\n") +
         "<polyline points=\"" + points +
         "\" pathLength=\"1\" fill=\"none\" stroke=\"#ffffff\" stroke-opacity=\"0.55\" "
         "stroke-width=\"0.016\" stroke-linejoin=\"round\" stroke-dasharray=\"1\">" +
         animate("stroke-dashoffset", hidden, seconds) + "</polyline>\n" +
         circle(path.back(), World::kPointRadius, "fill=\"#f0f0f0\">") +
         animate("cx", xs, seconds) + animate("cy", ys, seconds) + "</circle>\n";
}

}  // namespace

std::string draw(const World& world, uint32_t frames) {
  std::string out;
  for (uint32_t disc = 0; disc < World::kDiscs; ++disc) {
    out +=
        circle(world.discs()[disc], World::kDiscRadius,
               "fill=\"" + color_of(disc) + "\"" +
                   (disc == world.goal() ? " stroke=\"#fff\" stroke-width=\"0.02\"" : "") + "/>\n");
  }
  return out + moving_point(world.path(), frames);
}

}  // namespace reach
