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

const EnvironmentKind& EnvironmentRegistry::find(const std::string& name) const {
  if (name.empty() && kinds_.size() == 1) return kinds_.front();
  std::string names;
  for (const EnvironmentKind& kind : kinds_) {
    if (kind.name == name) return kind;
    names += (names.empty() ? "" : ", ") + kind.name;
  }
  const std::string there = kinds_.empty() ? "this program has none" : "this program has: " + names;
  throw Error(FRT_ERR_NOT_FOUND, (name.empty() ? "no environment is chosen"
                                               : "no environment is called " + io::quote(name)) +
                                     "; " + there);
}

}  // namespace frt::host
