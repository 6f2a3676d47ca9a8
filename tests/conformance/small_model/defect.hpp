// SPDX-License-Identifier: Apache-2.0
// defect.hpp - which rule this copy of the plugin breaks: the one that FRT_TEST_DEFECT names, none
// if it is not set. defects.py has the list.
#pragma once

#include <cstdlib>
#include <string_view>

namespace small {

inline bool has_defect(std::string_view name) {
  const char* named = std::getenv("FRT_TEST_DEFECT");
  return named && name == named;
}

}  // namespace small
