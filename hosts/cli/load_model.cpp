// SPDX-License-Identifier: Apache-2.0
#include "cli/load_model.hpp"

#include "cli/terminal/signals.hpp"

namespace frt::host {

LoadedModel load_model(App& app, const std::string& manifest, const std::string& model,
                       LoadOptions options) {
  const InterruptGuard interrupt;
  options.observer = &app.load_view();
  options.setup_patience = app.setup_patience();
  return LoadedModel(app.manifests(), manifest, model, options);
}

}  // namespace frt::host
