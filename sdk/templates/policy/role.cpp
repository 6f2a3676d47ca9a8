// SPDX-License-Identifier: Apache-2.0
// frt.role.policy/1: which variant an inference replays, and the prompt.
#include "policy.hpp"
#include "tables.hpp"

#include <frt/role/contracts.hpp>

namespace acme {
namespace {

frt_status info(frt_model model, frt_policy_info* out) {
  return frt::fill(out, frt::object<Policy>(model)->role());
}

frt_status infer_key(frt_model model, const frt_policy_shape* shape, frt_shape_key* key) {
  if (!model || !shape || !key) return FRT_ERR_INVALID_ARGUMENT;
  return frt::guard(nullptr, [&]() -> frt_status {
    const auto wanted = frt::read_table<frt_policy_shape>(shape, "the host");
    if (wanted.views > 1 || wanted.prompt > 1) return FRT_ERR_OUT_OF_RANGE;
    if (wanted.steps > 1 || wanted.samples > 1 || wanted.branches > 1) return FRT_ERR_NO_VARIANT;
    *key = 1;
    return FRT_OK;
  });
}

frt_status set_prompt(frt_model model, uint32_t branch, const char* instruction, const char*,
                      frt_stream stream, uint32_t* tokens, frt_error* error) {
  return frt::guard(error, [&] {
    if (branch != 0 || !instruction) {
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "set_prompt: an instruction for branch 0");
    }
    auto& policy = *frt::object<Policy>(model);
    policy.upload({{}, {}, {policy.goal_of(instruction)}}, stream);
    if (tokens) *tokens = 1;
  });
}

}  // namespace

// No parts, no guidance, no continuation.
const frt_role_policy_v1 kRolePolicy = {sizeof(frt_role_policy_v1),
                                        0,
                                        info,
                                        infer_key,
                                        nullptr,
                                        nullptr,
                                        set_prompt,
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        nullptr};

}  // namespace acme
