// SPDX-License-Identifier: Apache-2.0
// frt-host: runs models from a manifest. One file per command (command_*.cpp).
#include "cli/app.hpp"

int main(int argc, char** argv) {
  frt::host::App app("frt-host");
  frt::host::add_run_command(app);
  frt::host::add_bench_command(app);
  frt::host::add_verify_command(app);
  return app.run(argc, argv);
}
