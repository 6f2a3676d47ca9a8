// SPDX-License-Identifier: Apache-2.0
// frt/io/write_advice.hpp - what the user can do where a file cannot be written.
#pragma once

#include <string_view>

namespace frt::io {

// "; ..." for the errno of a call that writes or creates a file; empty where the system's own text
// says it all.  [any]
std::string_view write_advice(int code) noexcept;

}  // namespace frt::io
