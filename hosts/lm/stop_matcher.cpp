// SPDX-License-Identifier: Apache-2.0
// The earliest match wins; among matches at one place the first given. After a piece, the longest
// suffix that is a proper prefix of some stop string is held back.
#include "lm/stop_matcher.hpp"

#include <frt/error.hpp>

#include <algorithm>
#include <utility>

namespace frt::host {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw Error(FRT_ERR_INVALID_ARGUMENT, "a stop string is empty; remove it");
  }
}

std::string StopMatcher::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at < first) {
      first = at;
      match_ = stop;
    }
  }
  if (first != std::string::npos) {
    stopped_ = true;
    std::string shown = held_.substr(0, first);
    held_.clear();
    return shown;
  }
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::flush() {
  return std::exchange(held_, {});
}

}  // namespace frt::host
