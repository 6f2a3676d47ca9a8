// SPDX-License-Identifier: Apache-2.0
// state.hpp - where programs that embed core get the state arenas (frt/capsule.h) from; the host
// hands the same table to plugins under FRT_EXT_STATE.
#pragma once

#include <frt/capsule.h>

namespace frt::core {

// The one table. Never NULL, complete, lives as long as the program.  [any]
const frt_state_v1* state_table() noexcept;

}  // namespace frt::core
