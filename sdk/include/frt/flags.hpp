// SPDX-License-Identifier: Apache-2.0
// frt/flags.hpp - refusing flags that their receiver does not know, as frt/base.h demands: an older
// receiver that took a newer one's flag and did nothing would do something else than it was asked.
//
//     frt::require_flags(flags, FRT_DECODE_SKIP_SPECIAL, "decode");
//
// Header only.
#pragma once

#include <frt/base.h>

#include <cstdint>
#include <frt/error.hpp>
#include <string>
#include <string_view>

namespace frt {

// Throws FRT_ERR_UNSUPPORTED, with `what` (the function or the member) and the unknown bits.
// `known`: the flags that the receiver acts upon.  [any]
inline void require_flags(uint32_t flags, uint32_t known, std::string_view what) {
  const uint32_t unknown = flags & ~known;
  if (unknown == 0) return;
  throw Error(FRT_ERR_UNSUPPORTED, std::string(what) + ": unknown flags " +
                                       std::to_string(unknown) +
                                       "; leave them 0, or use a version that knows them");
}

}  // namespace frt
