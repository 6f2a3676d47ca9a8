// SPDX-License-Identifier: Apache-2.0
// Edit distance by rows, kept to a band of 2 * limit + 1 cells around the diagonal and left as soon
// as a whole row exceeds the limit: searching 100,000 tensor names costs milliseconds.
#include "text.hpp"

#include <algorithm>
#include <vector>

namespace frt::models {

std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > limit) return limit + 1;
  std::vector<std::size_t> previous(b.size() + 1), current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const std::size_t first = i > limit ? i - limit : 1;
    const std::size_t last = std::min(b.size(), i + limit);
    current[first - 1] = first == 1 ? i : limit + 1;
    std::size_t best = current[first - 1];
    for (std::size_t j = first; j <= last; ++j) {
      const std::size_t above = j == i + limit ? limit + 1 : previous[j];
      current[j] = std::min(
          {previous[j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u), above + 1, current[j - 1] + 1});
      best = std::min(best, current[j]);
    }
    if (best > limit) return limit + 1;
    std::swap(previous, current);
  }
  return std::min(previous[b.size()], limit + 1);
}

std::string bytes_text(unsigned long long count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

}  // namespace frt::models
