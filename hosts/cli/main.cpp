// SPDX-License-Identifier: Apache-2.0
// frt-host: runs models from a manifest. One file per command (command_*.cpp).
#include "cli/app.hpp"

int main(int argc, char** argv) {
  frt::host::App app("frt-host");
  frt::host::add_run_command(app);
  frt::host::add_chat_command(app);
  frt::host::add_capsule_command(app);
  frt::host::add_replay_command(app);
  frt::host::add_serve_command(app);
  frt::host::add_rollout_command(app);
  frt::host::add_handoff_command(app);
  frt::host::add_bench_command(app);
  frt::host::add_verify_command(app);
  frt::host::add_calibrate_command(app);
  frt::host::add_config_command(app);
  frt::host::add_plugins_command(app);
  frt::host::add_devices_command(app);
  frt::host::add_doctor_command(app);
  frt::host::add_completion_command(app);
  frt::host::add_version_command(app);
  return app.run(argc, argv);
}
