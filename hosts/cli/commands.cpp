// SPDX-License-Identifier: Apache-2.0
// All commands, in the order of the help.
#include "cli/app.hpp"

namespace frt::host {

void add_commands(App& app) {
  add_run_command(app);
  add_chat_command(app);
  add_capsule_command(app);
  add_replay_command(app);
  add_tokenize_command(app);
  add_serve_command(app);
  add_launch_command(app);
  add_rollout_command(app);
  add_handoff_command(app);
  add_bench_command(app);
  add_verify_command(app);
  add_calibrate_command(app);
  add_config_command(app);
  add_plugins_command(app);
  add_devices_command(app);
  add_doctor_command(app);
  add_completion_command(app);
  add_version_command(app);
}

}  // namespace frt::host
