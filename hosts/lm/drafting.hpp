// SPDX-License-Identifier: Apache-2.0
// drafting.hpp - whether who writes uses the draft head of a model. It changes no token, only the
// time that they take.
#pragma once

#include <frt/error.hpp>

#include <string>

namespace frt::host {

enum class Drafting {
  kAuto,  // where it pays
  kOn,    // always as many drafts as the model proposes
  kOff,
};

// "auto", "on", "off"; FRT_ERR_INVALID_ARGUMENT for anything else.  [any]
inline Drafting drafting_from(const std::string& name) {
  if (name == "auto") return Drafting::kAuto;
  if (name == "on") return Drafting::kOn;
  if (name == "off") return Drafting::kOff;
  throw Error(FRT_ERR_INVALID_ARGUMENT, "speculation is '" + name + "'; give auto, on or off");
}

}  // namespace frt::host
