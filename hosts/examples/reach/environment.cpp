// SPDX-License-Identifier: Apache-2.0
#include "examples/reach/environment.hpp"

#include <memory>
#include <string>

#include "examples/reach/world.hpp"

namespace frt::host {
namespace {

std::unique_ptr<Environment> make_reach(const EnvironmentRequest& request) {
  std::string image, state;
  for (const ObservedName& name : request.names) {
    std::string& slot = name.image ? image : state;
    if (slot.empty()) slot = name.name;
  }
  return std::make_unique<ReachWorld>(image.empty() ? "observation/image" : image,
                                      state.empty() ? "observation/state" : state, request.suffix);
}

}  // namespace

void add_reach_environment(EnvironmentRegistry& environments) {
  environments.add({.name = "reach",
                    .doc = "a point that goes to the disc that the instruction names",
                    .max_ticks = ReachWorld::kMaxTicks,
                    .make = make_reach});
}

}  // namespace frt::host
