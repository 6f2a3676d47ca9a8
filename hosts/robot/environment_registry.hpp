// SPDX-License-Identifier: Apache-2.0
// environment_registry.hpp - environments that a program brings itself, by name, for `rollout` and
// `handoff`. Those of plugins are in the manifest (runtime/environment_choice.hpp).
//
// A program registers its own before it runs commands:
//
//     App app("my-host");
//     app.environments().add({.name = "arm", .doc = "the arm in cell 4", .make = make_arm});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "robot/environment.hpp"
#include "robot/policy_model.hpp"

namespace frt::host {

// What a new environment is told.
struct EnvironmentRequest {
  std::vector<ObservedName> names;  // what the policy reads; empty if it does not say
  std::string suffix;               // put behind each instruction
};

struct EnvironmentKind {
  std::string name;  // lower-case letters, digits and '_'
  std::string doc;   // one line
  std::function<std::unique_ptr<Environment>(const EnvironmentRequest&)> make{};
};

class EnvironmentRegistry {
 public:
  // Throws FRT_ERR_INVALID_ARGUMENT for a name that is taken or none, or without `make`.  [setup]
  void add(EnvironmentKind kind);
  // By name; null if there is none.  [any]
  const EnvironmentKind* find(const std::string& name) const noexcept;
  std::vector<std::string> names() const;

 private:
  std::vector<EnvironmentKind> kinds_;  // in the order of add()
};

}  // namespace frt::host
