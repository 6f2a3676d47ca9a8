// SPDX-License-Identifier: Apache-2.0
// load_model.hpp - how a command loads its model: what happens goes to stderr, a signal stops it.
#pragma once

#include <string>

#include "cli/app.hpp"
#include "runtime/loaded_model.hpp"

namespace frt::host {

// As the constructor of LoadedModel; the program is its observer.  [setup]
LoadedModel load_model(App& app, const std::string& manifest, const std::string& model,
                       LoadOptions options = {});

}  // namespace frt::host
