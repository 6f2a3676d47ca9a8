// SPDX-License-Identifier: Apache-2.0
// stop_matcher.hpp - finds stop strings in text that arrives in pieces. Text that might be the
// beginning of a stop string is held back until it is decided.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

class StopMatcher {
 public:
  // Empty strings are refused (FRT_ERR_INVALID_ARGUMENT).
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes the next piece, returns what may be shown. After a match `stopped()` is true, the text
  // before the match has been returned, and further pieces give nothing.
  std::string push(std::string_view piece);
  // The end of the text: returns what was held back.
  std::string flush();

  bool stopped() const noexcept { return stopped_; }
  // The string that matched, or empty.
  const std::string& match() const noexcept { return match_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string match_;
  bool stopped_ = false;
};

}  // namespace frt::host
