// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/checksum.hpp - the checks of frt/ops/checksum.h. Header-only.  [setup]
#pragma once

#include <frt/ops/checksum.h>
#include <frt/checks.hpp>

#include <cstdint>

namespace frt {

inline void check_checksum(const Checks& check, const frt_checksum_args& args) {
  check.require(args.bytes % 8 == 0, "bytes", "is not a multiple of 8");
  check.array("x", args.x, FRT_DTYPE_U64, {static_cast<int64_t>(args.bytes / 8)});
  check.array("y", args.y, {1});
}

}  // namespace frt
