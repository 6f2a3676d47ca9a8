// SPDX-License-Identifier: Apache-2.0
// The C functions of policies, as api_runtime.cpp.
#include <frt/observation.hpp>
#include <utility>

#include "embed/call.hpp"
#include "embed/handles.hpp"
#include "embed/policy.hpp"

using namespace frt;         // NOLINT: this file is the C side of the namespace
using namespace frt::embed;  // NOLINT

extern "C" {

frt_status frt_policy_open(frt_runtime runtime, const char* name, frt_policy* policy,
                           frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(policy, "policy");
    const auto opened = now.object<Runtime>(runtime);
    *policy = new_handle<frt_policy>(opened->policy(opened->model_name(name)));
  });
}

frt_status frt_policy_close(frt_policy policy) {
  return guard(nullptr, [&] { take_object<Policy>(policy); });
}

frt_status frt_policy_facts_of(frt_policy policy, frt_policy_facts* facts, frt_error* error) {
  return api_call(error, [&](Call& now) {
    give(facts, now.object<Policy>(policy)->facts(), "frt_policy_facts");
  });
}

frt_status frt_policy_observe(frt_policy policy, const frt_observation* observation,
                              frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Policy>(policy);
    opened->observe(read_observation(observation, kCaller));
  });
}

frt_status frt_policy_guide(frt_policy policy, const double* strengths, uint32_t rows,
                            uint32_t branches, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Policy>(policy);
    if (rows == 0 || branches == 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "strengths have one row and one branch at least");
    }
    const auto given = list_of(strengths, uint64_t{rows} * branches, "strengths");
    opened->guide({{given.begin(), given.end()}, branches});
  });
}

frt_status frt_policy_infer(frt_policy policy, const frt_infer_options* options, double* actions,
                            uint64_t capacity, float* network, uint64_t network_capacity,
                            frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Policy>(policy);
    frt_infer_options given{};
    if (options) given = read_table<frt_infer_options>(options, kCaller);
    required(actions, "actions");
    opened->infer(given, {actions, capacity}, {network, network ? network_capacity : 0});
  });
}

frt_status frt_policy_snapshot(frt_policy policy, frt_policy_capsule* capsule, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(capsule, "capsule");
    *capsule = new_handle<frt_policy_capsule>(now.object<Policy>(policy)->snapshot());
  });
}

frt_status frt_policy_restore(frt_policy policy, frt_policy_capsule capsule, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Policy>(policy);
    opened->restore(*now.object<PolicyCapsule>(capsule));
  });
}

frt_status frt_policy_capsule_facts(frt_policy_capsule capsule, frt_capsule_facts* facts,
                                    frt_error* error) {
  return api_call(error, [&](Call& now) {
    give(facts, now.object<PolicyCapsule>(capsule)->facts(), "frt_capsule_facts");
  });
}

frt_status frt_policy_capsule_close(frt_policy_capsule capsule) {
  return guard(nullptr, [&] { take_object<PolicyCapsule>(capsule); });
}

}  // extern "C"
