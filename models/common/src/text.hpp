// SPDX-License-Identifier: Apache-2.0
// Text for error messages. Names from files are shown with io::quote().
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace frt::models {

// Number of single-character edits between two strings, or `limit` + 1 if there are more.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit);

// "1234 bytes"
std::string bytes_text(unsigned long long count);

}  // namespace frt::models
