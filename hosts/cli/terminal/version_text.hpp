// SPDX-License-Identifier: Apache-2.0
// version_text.hpp - what this program is, for people.
#pragma once

#include <string>

namespace frt::host {

// One line without its end: what `version` and --version print.  [any]
std::string version_text();

}  // namespace frt::host
