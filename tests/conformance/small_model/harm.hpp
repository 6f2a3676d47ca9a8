// SPDX-License-Identifier: Apache-2.0
// harm.hpp - which rule this copy of the plugin breaks: the one that FRT_HARM names, none if it is
// not set. broken.py has the list.
#pragma once

#include <cstdlib>
#include <string_view>

namespace small {

inline bool harms(std::string_view name) {
  const char* named = std::getenv("FRT_HARM");
  return named && name == named;
}

}  // namespace small
