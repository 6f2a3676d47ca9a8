// SPDX-License-Identifier: Apache-2.0
// text.hpp - numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace frt::host {

// How near a time is to the least that a measured bandwidth allows: "73 %". "> 100 %" for what took
// less than that, as reading what is in a cache does.
std::string share_text(double share);

// Seconds since 1970 as "2026-11-24T03:15:00Z".
std::string time_text(uint64_t unix_seconds);

}  // namespace frt::host
