// SPDX-License-Identifier: Apache-2.0
// capsules.hpp - where programs that embed core get the capsule verbs (frt/capsule.h) from; the
// host hands the same table to plugins under FRT_EXT_CAPSULES. frt/capsule.hpp wraps it.
#pragma once

#include <frt/capsule.h>
#include <frt/core/digest.hpp>

#include <functional>
#include <vector>

namespace frt::core {

// The one table. Never NULL, complete, lives as long as the program.  [any]
const frt_capsules_v1* capsules_table() noexcept;

// As frt_capsules_v1::bind, with fields that are asked for when the fingerprint is first needed;
// what `fields` uses lives until then, or as long as the arena. Throws FRT_ERR_EXISTS if something
// is bound.  [setup]
void bind_capsules(frt_state state, std::function<std::vector<Fingerprint::Field>()> fields);

}  // namespace frt::core
