// SPDX-License-Identifier: Apache-2.0
// refusal.hpp - wrong arguments must be refused by the backend under test and by the reference.
#pragma once

#include <string>

#include "check.hpp"

namespace frt::conformance {

// `fill` makes good arguments, `spoil(args)` wrong ones. Each side in turn is given the wrong ones
// and must return FRT_ERR_INVALID_ARGUMENT with a message that names the operator. The case is
// skipped where the backend under test does not support the good ones. The reference comes first:
// its refusal names operator, argument and value, and stands in the message about a backend that
// does not refuse.
template <class Args, class Fill, class Spoil>
void refused(Case& c, const std::string& name, const KernelTypes& types,
             const WeightFormats& weights, const Fill& fill, const Spoil& spoil) {
  std::string wanted;  // the refusal of the reference
  for (int side = 1; side >= 0; --side) {
    const auto wrong = [&](const std::string& answer) {
      return answer + (wanted.empty() ? "" : "; the reference says: " + wanted);
    };
    bool accepted = true;
    try {
      c.run<Args>(name, types, weights, [&](Args& args, const At& at) {
        fill(args, at);
        if (at.side() == side) spoil(args);
      });
    } catch (const Error& error) {
      accepted = false;
      if (error.status() != FRT_ERR_INVALID_ARGUMENT ||
          std::string(error.what()).find(name) == std::string::npos) {
        throw Error(error.status(), wrong(error.what()));
      }
      if (side == 1) wanted = error.what();
    } catch (const Skip&) {
      c.run<Args>(name, types, weights, fill);
      Case::fail(wrong(name + " answers wrong arguments with FRT_ERR_UNSUPPORTED"));
    }
    if (accepted) {
      Case::fail(wrong(std::string(side == 0 ? "the backend" : "the reference") +
                       " accepts wrong arguments of " + name));
    }
  }
}

}  // namespace frt::conformance
