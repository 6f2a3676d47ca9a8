// SPDX-License-Identifier: Apache-2.0
// random_inputs.hpp - a policy's input buffers full of random values, for benchmarks and checks.
#pragma once

#include <frt/role/policy.h>
#include <frt/exec.hpp>

#include <cstdint>
#include <random>
#include <vector>

namespace frt::host {

// Writes images, their mask, proprioception, a prompt for each branch and noise, as far as the
// policy has buffers for them; strengths and a previous chunk stay as they are. `view_mask` has
// `views` values, `prompts` the tokens of each branch. The values are there on return.  [driver]
void write_random_inputs(const Context& context, const frt_policy_info& info,
                         const std::vector<int32_t>& view_mask, const std::vector<int32_t>& prompts,
                         std::mt19937_64& random, const Stream& stream);

}  // namespace frt::host
