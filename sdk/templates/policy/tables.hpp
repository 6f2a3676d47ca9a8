// SPDX-License-Identifier: Apache-2.0
// What the policy offers to hosts beside frt.model/1.
#pragma once

#include <frt/observation.h>
#include <frt/role/policy.h>

namespace acme {

extern const frt_role_policy_v1 kRolePolicy;   // role.cpp
extern const frt_observation_v1 kObservation;  // observation.cpp

}  // namespace acme
