// SPDX-License-Identifier: Apache-2.0
// frt/version.hpp - which versions of the ABI work together. Header only; all functions are [any].
#pragma once

#include <frt/base.h>

#include <cstdint>
#include <string>

namespace frt {

// The oldest version that works with version `major.minor`, as text. Two versions work together
// exactly if it is the same for both. Before 1.0 a minor version may break what was before, so it
// works with itself alone: "0.9". From 1.0 on a minor version only adds, so all of one major
// version work together, in both directions: "1.0".
inline std::string oldest_abi(uint32_t major = FRT_ABI_MAJOR, uint32_t minor = FRT_ABI_MINOR) {
  return std::to_string(major) + "." + std::to_string(major == 0 ? minor : 0);
}

}  // namespace frt
