// SPDX-License-Identifier: Apache-2.0
// svg_plot.hpp - lines over logarithmic axes as an SVG text, for results that a table hides.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace frt::host {

struct SvgSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // both above 0
};

// `x_labels`: where the x axis has ticks, and what stands there. Series without points are left
// out; without any the plot has axes only.
std::string svg_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                     const std::vector<std::pair<double, std::string>>& x_labels,
                     const std::vector<SvgSeries>& series);

}  // namespace frt::host
