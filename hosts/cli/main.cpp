// SPDX-License-Identifier: Apache-2.0
// frt-host: runs models from a manifest. One file per command (commands/).
#include "cli/app.hpp"
#include "cli/terminal/signals.hpp"
#include "examples/reach/environment.hpp"

#include <frt/core/services.hpp>

int main(int argc, char** argv) {
  frt::core::SetupWatch::name_crashes();
  frt::host::App app("frt-host");
  frt::host::add_reach_environment(app.environments());
  frt::host::add_commands(app);
  const int status = app.run(argc, argv);
  frt::host::end_with(status);
  return status;
}
