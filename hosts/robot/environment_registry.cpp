// SPDX-License-Identifier: Apache-2.0
#include "robot/environment_registry.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <utility>

namespace frt::host {
namespace {

bool is_name(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

void EnvironmentRegistry::add(EnvironmentKind kind) {
  const bool taken = std::ranges::any_of(
      kinds_, [&](const EnvironmentKind& other) { return other.name == kind.name; });
  if (!is_name(kind.name) || taken || !kind.make) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "the environment " + io::quote(kind.name) +
                    (taken       ? " is registered twice; give one of them another name"
                     : kind.make ? " needs a name of lower-case letters, digits and '_'"
                                 : " cannot be made; set `make`"));
  }
  kinds_.push_back(std::move(kind));
}

const EnvironmentKind* EnvironmentRegistry::find(const std::string& name) const noexcept {
  const auto found = std::ranges::find(kinds_, name, &EnvironmentKind::name);
  return found == kinds_.end() ? nullptr : &*found;
}

std::vector<std::string> EnvironmentRegistry::names() const {
  std::vector<std::string> names;
  for (const EnvironmentKind& kind : kinds_) names.push_back(kind.name);
  return names;
}

}  // namespace frt::host
