// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/number_list.hpp"

#include <frt/core/config.hpp>

#include <algorithm>

#include "runtime/exit_code.hpp"

namespace frt::host {
namespace {

constexpr std::size_t kMost = 1000;  // entries of one list

[[noreturn]] void refuse(const std::string& part) {
  throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                  "'" + part + "' is no size or range; write 512, 2k, 128-1024*2 or 0-64+16");
}

uint64_t number(const std::string& text, const std::string& part) {
  const auto value = core::parse_size(text);
  if (!value) refuse(part);
  return static_cast<uint64_t>(*value);
}

void add_range(const std::string& part, std::vector<uint64_t>& out) {
  const std::size_t dash = part.find('-');
  const std::size_t step_at = part.find_first_of("*+", dash);
  if (step_at == std::string::npos) refuse(part);
  uint64_t value = number(part.substr(0, dash), part);
  const uint64_t last = number(part.substr(dash + 1, step_at - dash - 1), part);
  const uint64_t step = number(part.substr(step_at + 1), part);
  const bool times = part[step_at] == '*';
  if (last < value || (times ? step < 2 || value == 0 : step == 0)) refuse(part);
  for (;;) {
    if (out.size() >= kMost) refuse(part);
    out.push_back(value);
    if (times ? value > last / step : step > last - value) return;  // the next one is beyond
    value = times ? value * step : value + step;
  }
}

}  // namespace

std::vector<uint64_t> parse_number_list(const std::string& text) {
  std::vector<uint64_t> values;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    if (part.find('-') != std::string::npos) {
      add_range(part, values);
    } else {
      values.push_back(number(part, part));
    }
    at = end + 1;
  }
  return values;
}

}  // namespace frt::host
