// SPDX-License-Identifier: Apache-2.0
// frt-host: runs models from a manifest. One file per command (commands/).
#include "cli/app.hpp"
#include "cli/terminal/signals.hpp"

#include <frt/core/services.hpp>

#include <csignal>

int main(int argc, char** argv) {
  // Inherited as ignored, the system would take the children of trials with their status.
  std::signal(SIGCHLD, SIG_DFL);
  frt::core::SetupWatch::name_crashes();
  frt::host::App app("frt-host");
  frt::host::add_commands(app);
  const int status = app.run(argc, argv);
  frt::host::end_with(status);
  return status;
}
