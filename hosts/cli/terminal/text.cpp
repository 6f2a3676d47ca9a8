// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/text.hpp"

#include <fmt/format.h>

#include <ctime>

namespace frt::host {

std::string share_text(double share) {
  return share > 1.005 ? "> 100 %" : fmt::format("{:.0f} %", share * 100);
}

std::string time_text(uint64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  if (!gmtime_r(&seconds, &parts)) return std::to_string(unix_seconds);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace frt::host
