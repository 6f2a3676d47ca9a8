// SPDX-License-Identifier: Apache-2.0
// build_info.hpp - what this program was built from and with.
#pragma once

#include <string>

namespace frt::host {

// The revision of the source tree, with "+" if it had changes; "unknown" outside a checkout.
std::string source_revision();
// "release 1a2b3c4 gcc 12.2": one cell of a table.
std::string build_description();

}  // namespace frt::host
