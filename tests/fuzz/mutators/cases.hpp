// SPDX-License-Identifier: Apache-2.0
// cases.hpp - how many cases a test makes: few by default, as many as a variable says at night.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace frt::test {

inline uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace frt::test
