// SPDX-License-Identifier: Apache-2.0
// policy_inputs.hpp - what a policy reads, told to people and to clients.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "robot/policy_model.hpp"

namespace frt::host {

// For programs: [{"name", "dtype", "shape", "required"}, ...], where null stands for an extent that
// the policy does not fix. The prompt has the dtype "text" and no shape; whether it may be missing,
// the checkpoint decides. Empty if the policy does not say.  [setup]
nlohmann::ordered_json inputs_json(const PolicyModel& policy);

// For people: "state f32[2]; (image/base_0_rgb u8[H,W,3]); prompt". An extent that the policy does
// not fix is a letter; what may be missing is in parentheses.  [setup]
std::string inputs_text(const PolicyModel& policy);

// All sizes: {"inputs": as above, "views", "image_height", "image_width" (pixels), "state_dim",
// "prompt_tokens" (at most), "horizon" (actions of a chunk), "action_dim" (values of a robot's
// action), "network_action_dim", "steps" (denoising), "guidance_branches" (branches)}.  [setup]
nlohmann::ordered_json policy_json(const PolicyModel& policy);

}  // namespace frt::host
