// SPDX-License-Identifier: Apache-2.0
// frt-host: runs models from a manifest. One file per command (command_*.cpp).
#include "cli/app.hpp"

int main(int argc, char** argv) {
  frt::host::App app("frt-host");
  frt::host::add_commands(app);
  return app.run(argc, argv);
}
