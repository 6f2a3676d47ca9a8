// SPDX-License-Identifier: Apache-2.0
// number_list.hpp - lists of sizes on the command line: "512", "128,1k", "128-1024*2" (128, 256,
// 512, 1024), "0-64+16" (0, 16, 32, 48, 64).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace frt::host {

// Throws ExitError(kUsage) naming the part that is wrong; at most 1000 numbers.
std::vector<uint64_t> parse_number_list(const std::string& text);

}  // namespace frt::host
