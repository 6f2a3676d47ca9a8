// SPDX-License-Identifier: Apache-2.0
// frt-host config: check a manifest without a device, show what it comes to, write a first one,
// and print its schema for editors.
#include <fmt/format.h>
#include <frt/io/utf8.hpp>

#include <memory>

#include "cli/app.hpp"
#include "cli/terminal/output.hpp"
#include "runtime/lm_settings.hpp"
#include "runtime/report/manifest_report.hpp"

namespace frt::host {
namespace {

constexpr const char* kDefaultManifest =
    R"(# A manifest says what runs where. `frt-host config check FILE` checks it without a device,
# `frt-host plugins show ID` lists the options of a plugin.
schema = 1

[device.cpu0]
backend = "frt.cpu"               # a plugin id, or "auto": the best that is not the CPU
# capture = false                 # run recipes at each replay, for profilers

# [device.cpu0.options]
# threads = 4                     # 0: all

[model.demo]
plugin     = "frt.qwen36"
device     = "cpu0"
checkpoint = "checkpoints/demo"   # relative to this file; or "synthetic:qwen3.6-tiny"

# [model.demo.options]
# slots = 4
# max_context = "32k"

# [environment.arm]               # rollout, handoff: what a policy acts on
# plugin = "frt.reach"            # options of the plugin: [environment.arm.options]

# [host.lm]
# model       = "demo"
# capsule_dir = "capsules"        # disk tier; absent: no disk tier
# capsule_device = "2G"           # bytes of device memory for capsules; also capsule_host, _disk

# [host.http]                     # serve: language models behind HTTP
# model    = "demo"
# listen   = "127.0.0.1:8080"     # other machines: "0.0.0.0:8080", and a key_file
# aliases  = "*=demo"             # other names that clients may ask for
# key_file = "keys"               # lines 'NAME SECRET'

# [host.robot]                    # serve, rollout, handoff: a policy
# model       = "arm"
# listen      = "127.0.0.1:8000"
# deadline_ms = 1000              # an answer that takes longer is an error
# execute     = 0                 # actions of a chunk before the policy looks again; 0: all
)";

void add_check(App& app, Command config) {
  auto path = std::make_shared<std::string>();
  Command command =
      config.add_subcommand("check", "Check a manifest and list all findings in one pass");
  command.add_option("manifest", *path, kManifestDoc).required();
  command.examples({"config check my.toml"});
  app.add_command(command, [&app, path] {
    const core::Manifest manifest = app.manifests().load(*path);
    check_generation_configs(manifest);
    print_out("{}: ok ({} devices, {} models, {} environments, {} hosts, {} warnings)\n",
              io::printable(*path), manifest.devices.size(), manifest.models.size(),
              manifest.environments.size(), manifest.hosts.size(), manifest.warnings.size());
    return ExitCode::kOk;
  });
}

void add_dump(App& app, Command config) {
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  Command command =
      config.add_subcommand("dump", "Show the complete manifest and where each value comes from");
  command.add_option("manifest", *path, kManifestDoc).required();
  command.add_flag("--json", *json, "Print JSON instead of TOML");
  command.examples({"config dump my.toml", "config dump checkpoints/my-model > my-model.toml"});
  app.add_command(command, [&app, path, json] {
    const core::Manifest manifest = app.manifests().load(*path);
    print_out("{}\n", *json ? dump_json(manifest) : dump_toml(manifest));
    return ExitCode::kOk;
  });
}

void add_default(App& app, Command config) {
  Command command = config.add_subcommand("default", "Write a commented first manifest");
  command.examples({"config default > my.toml"});
  app.add_command(command, [] {
    print_out("{}", kDefaultManifest);
    return ExitCode::kOk;
  });
}

void add_schema(App& app, Command config) {
  Command command =
      config.add_subcommand("schema", "Print a JSON Schema of manifests, for editors");
  command.examples({"config schema > manifest.schema.json"});
  app.add_command(command, [&app] {
    print_out("{}\n",
              manifest_json_schema(app.manifests().host_schemas(), app.registry().schemas()));
    return ExitCode::kOk;
  });
}

}  // namespace

void add_config_command(App& app) {
  Command config = app.program().add_subcommand("config", "Check, show and explain manifests");
  config.require_subcommand();
  config.examples({"config default > my.toml", "config check my.toml", "config dump my.toml",
                   "config schema > manifest.schema.json"});
  add_check(app, config);
  add_dump(app, config);
  add_default(app, config);
  add_schema(app, config);
}

}  // namespace frt::host
