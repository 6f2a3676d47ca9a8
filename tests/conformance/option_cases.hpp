// SPDX-License-Identifier: Apache-2.0
// option_cases.hpp - values of declared options that few people try: what the schema must keep from
// a plugin, and what it lets through.
#pragma once

#include <frt/core/config.hpp>

#include <functional>
#include <string>
#include <vector>

#include "backend.hpp"
#include "raw_model.hpp"

namespace frt::conformance {

// What a plugin answered to a device or a model with these options.
using MakeWith = std::function<Creation(const std::vector<Option>&)>;

// Tries each option of `schema`, by itself. What is out of its range, or of another type, the host
// refuses by the schema, and the error names the option. What the schema lets through (the least
// number, all choices, a file that does not exist) reaches the plugin, which takes it, or refuses
// it with a message that has the option or the value. `given` are options that stay as they are;
// `what` is "model" or "device", `function` the plugin's. Throws FRT_ERR_MISMATCH.
void try_options(const std::vector<core::OptionSpec>& schema, const std::vector<Option>& given,
                 const std::string& what, const std::string& function, const MakeWith& make);

// `given` with `more` in place of those of its keys.
std::vector<Option> with_options(const std::vector<Option>& given, const std::vector<Option>& more);

}  // namespace frt::conformance
