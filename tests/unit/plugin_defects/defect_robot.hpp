// SPDX-License-Identifier: Apache-2.0
// defect_robot.hpp - the roles of a policy and a critic, and how the policy takes
// observations: two actions of two values, which are the state that came in.
#pragma once

#include <frt/observation.h>
#include <frt/role/critic.h>
#include <frt/role/policy.h>
#include <frt/observation.hpp>
#include <frt/role/contracts.hpp>

#include <cstring>

#include "defect_parts.hpp"
#include "defects.hpp"

namespace defects {

inline constexpr uint32_t kHorizon = 2, kActionDim = 2;

// ---- the policy ---------------------------------------------------------------------------

inline frt_status policy_info(frt_model model, frt_policy_info* out) {
  if (is("policy_info_status")) return kUnknownStatus;
  if (is("policy_info_throws")) throw std::runtime_error("no plan today");
  const Parts known = parts(model);
  frt_policy_info info{};
  info.struct_size = sizeof(info);
  info.image_dtype = FRT_DTYPE_U8;
  info.views = 1;
  info.image_height = info.image_width = 2;
  info.images = info.view_mask = known.buffer;
  info.horizon = is("policy_info_horizon") ? 4096 : kHorizon;
  info.action_dim = kActionDim;
  info.max_prompt = 4;
  info.default_steps = info.max_steps = info.max_samples = info.guidance_branches = 1;
  info.infer = is("policy_info_no_infer") ? nullptr : known.graph;
  info.actions = is("policy_info_no_actions") ? nullptr : known.buffer;
  const frt_status status = frt::fill(out, info);
  if (is("policy_info_size_3")) out->struct_size = 3;
  return status;
}

// The key says what was asked for.
inline frt_status policy_key(frt_model, const frt_policy_shape* given, frt_shape_key* key) {
  return frt::guard(nullptr, [&] {
    if (is("infer_key_fails")) throw frt::Error(FRT_ERR_NO_VARIANT, "");
    const auto shape = frt::read_table<frt_policy_shape>(given, "the host");
    *key = shape.prompt * 10 + shape.branches;
  });
}

inline frt_status set_continuation(frt_model, const frt_policy_previous* given, frt_stream,
                                   frt_error* error) {
  return frt::guard(error, [&] {
    const auto previous = frt::read_table<frt_policy_previous>(given, "the host");
    if (previous.rows != 1 || !previous.actions || previous.actions[0] != 0.5f) {
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "no such chunk");
    }
  });
}

// ---- observations -------------------------------------------------------------------------

inline frt_status observation_info(frt_model, frt_observation_info* out) {
  if (is("observation_info_status")) return kUnknownStatus;
  frt_observation_info info{};
  info.struct_size = sizeof(info);
  info.action_dim = kActionDim;
  info.state_dim = kActionDim;
  info.names = R"([{"name": "state", "kind": "state", "shape": [2]}])";
  if (is("observation_names_garbage")) info.names = kGarbage;
  if (is("observation_names_no_list")) info.names = "{}";
  if (is("observation_names_numbers")) info.names = "[1]";
  if (is("observation_names_no_text")) info.names = R"([{"name": 1}])";
  info.metadata = "{}";
  const frt_status status = frt::fill(out, info);
  if (is("observation_info_size_3")) out->struct_size = 3;
  return status;
}

inline frt_status write_observation(frt_model, const frt_observation* given, frt_stream,
                                    frt_observed* out, frt_error* error) {
  return frt::guard(error, [&] {
    const auto observation = frt::read_observation(given, "the host");
    frt_observed observed{};
    observed.struct_size = sizeof(observed);
    observed.state_count = kActionDim;
    observed.prompt = observation.prompt_token_count;
    for (uint32_t i = 0; i < observation.array_count; ++i) {
      const frt_array& array = observation.arrays[i];
      if (std::strcmp(array.name, "state") != 0) continue;
      if (array.dtype != FRT_DTYPE_F64 || frt::array_elements(array) != kActionDim) {
        throw frt::Error(FRT_ERR_FORMAT, "'state' is not f64 (2)");
      }
      std::memcpy(observed.state, array.data, kActionDim * sizeof(double));
    }
    frt::check(frt::fill(out, observed), "observed");
  });
}

inline frt_status finish(frt_model, const frt_observed* given, const float* actions, double* robot,
                         frt_error* error) {
  return frt::guard(error, [&] {
    const auto observed = frt::read_table<frt_observed>(given, "the host");
    for (uint32_t i = 0; i < kHorizon * kActionDim; ++i) {
      robot[i] = actions[i] + observed.state[i % kActionDim];
    }
  });
}

// ---- the critic ---------------------------------------------------------------------------

inline frt_status critic_info(frt_model model, frt_critic_info* out) {
  if (is("critic_info_status")) return kUnknownStatus;
  const Parts known = parts(model);
  frt_critic_info info{};
  info.struct_size = sizeof(info);
  info.infer = is("critic_info_no_infer") ? nullptr : known.graph;
  info.value = is("critic_info_no_value") ? nullptr : known.buffer;
  info.proprioception = known.buffer;
  info.state_dim = is("critic_info_state") ? 4096 : kActionDim;
  const frt_status status = frt::fill(out, info);
  if (is("critic_info_size_3")) out->struct_size = 3;
  return status;
}

inline frt_status set_instruction(frt_model, const char* instruction, frt_stream,
                                  frt_error* error) {
  if (std::strcmp(instruction, "fold") == 0) return FRT_OK;
  return frt::set_error(error, FRT_ERR_NOT_FOUND, "no such task");
}

inline const void* robot_extension(std::string_view id) {
  if (id == FRT_EXT_ROLE_POLICY) {
    frt_role_policy_v1 table{};
    table.struct_size = sizeof(table);
    table.info = policy_info;
    table.infer_key = policy_key;
    table.set_continuation = set_continuation;
    return with_defect(table, "policy", [](frt_role_policy_v1& changed) {
      if (is("policy_no_info")) changed.info = nullptr;
      if (is("policy_no_infer_key")) changed.infer_key = nullptr;
    });
  }
  if (id == FRT_EXT_OBSERVATION && !is("observation_missing")) {
    const frt_observation_v1 table = {sizeof(table), 0, observation_info, write_observation,
                                      finish};
    return with_defect(table, "observation", [](frt_observation_v1& changed) {
      if (is("observation_no_write")) changed.write = nullptr;
      if (is("observation_no_finish")) changed.finish = nullptr;
    });
  }
  if (id == FRT_EXT_ROLE_CRITIC && !is("critic_missing")) {
    const frt_role_critic_v1 table = {sizeof(table), 0, critic_info, set_instruction};
    return with_defect(table, "critic", [](frt_role_critic_v1& changed) {
      if (is("critic_no_info")) changed.info = nullptr;
    });
  }
  return nullptr;
}

}  // namespace defects
