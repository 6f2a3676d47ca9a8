// SPDX-License-Identifier: Apache-2.0
// frt-host serve: a policy behind the openpi websocket protocol. Where it listens goes to stderr,
// the counters too, at the end.
#include <fmt/format.h>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include "cli/app.hpp"
#include "cli/interrupted.hpp"
#include "cli/loaded_model.hpp"
#include "cli/memory_reserve.hpp"
#include "cli/output.hpp"
#include "cli/robot_setup.hpp"
#include "cli/signals.hpp"
#include "robot/policy_inputs.hpp"

namespace frt::host {
namespace {

struct ServeOptions {
  std::string manifest;
  std::string model;
  std::string listen;
};

void warm_up(App& app, PolicyService& service) {
  const auto start = std::chrono::steady_clock::now();
  const uint32_t variants =
      service.warm_up(core::state_table(), core::capsules_table(), InterruptGuard::requested);
  if (InterruptGuard::requested()) throw Error(FRT_ERR_CANCELLED, "stopped on request");
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (!app.options().quiet) {
    print_err("warm-up: each of {} variants once, in {:.2f} s\n", variants, taken.count());
  }
}

ExitCode serve_policy(App& app, const RobotSettings& settings, const LoadedModel& loaded) {
  const PolicyModel policy = policy_of(loaded);
  PolicyService service(policy, settings.service);
  stage(ExitCode::kManifest, [&] { service.check_options(); });
  const InterruptGuard interrupt;
  if (settings.warm_up) warm_up(app, service);
  ServerOptions server_options = settings.server;
  server_options.metadata = service.metadata();
  const std::string realtime = apply_realtime(settings.realtime);
  PolicyServer server(server_options, [&service] { return service.metrics(); });
  const std::string address = server_options.listen.substr(0, server_options.listen.rfind(':'));
  if (!app.options().quiet) {
    const std::string inputs = inputs_text(policy);
    print_err("this policy reads: {}\n", inputs.empty() ? "it does not say" : inputs);
  }
  print_err("serving {} on ws://{}:{} (openpi protocol){}{}\n", policy.name(), address,
            server.port(), realtime.empty() ? "" : "; ", realtime);
  std::fflush(stderr);

  bool lost = false;
  server.run(
      [&](const PolicyServer::Request& request) {
        fill_memory_reserve();
        try {
          return service.handle(request);
        } catch (const Error& error) {
          // Nothing will work any more: end, so that whoever watches can start again.
          lost = lost || error.status() == FRT_ERR_DEVICE_LOST;
          throw;
        }
      },
      [&] { return lost || InterruptGuard::requested(); });

  if (!app.options().quiet) {
    const ServerCounters& counters = server.counters();
    print_err(
        "{} requests, {} replies, {} errors, {} missed deadlines, {} clients cut off; "
        "captures since ready: {}\n"
        "{} connections: {} refused, {} handshakes and {} messages not complete in time, {} "
        "displaced, {} silent, {} idle, {} out of memory\n"
        "inference: {}\n",
        counters.requests.load(), counters.replies.load(), counters.errors.load(),
        counters.deadline_misses.load(), counters.slow_clients.load(),
        loaded.context().counters().captures_since_ready, counters.connections.load(),
        counters.refused.load(), counters.handshake_timeouts.load(),
        counters.receive_timeouts.load(), counters.displaced.load(), counters.silent.load(),
        counters.idle.load(), counters.out_of_memory.load(), to_text(service.latency().summary()));
  }
  if (lost) throw ExitError(ExitCode::kDevice, FRT_ERR_DEVICE_LOST, "the device is lost");
  // SIGTERM asks a service to end, and it did.
  return interrupting_signal() == SIGTERM ? ExitCode::kOk : interrupted_status();
}

ExitCode serve(App& app, const ServeOptions& options) {
  RobotSettings settings = robot_settings(app.load_manifest(options.manifest));
  if (!options.listen.empty()) {
    stage(ExitCode::kUsage, [&] { check_address(options.listen); });
    settings.server.listen = options.listen;
  }
  const LoadedModel loaded(app, options.manifest,
                           options.model.empty() ? settings.model : options.model);
  return serve_policy(app, settings, loaded);
}

}  // namespace

void add_serve_command(App& app) {
  auto options = std::make_shared<ServeOptions>();
  Command command =
      app.program().add_subcommand("serve", "Serve a policy to robots (openpi websocket protocol)");
  command.add_option("manifest", options->manifest, "The manifest (TOML), see [host.robot]")
      .required();
  command.add_option("--model", options->model, "Which model of the manifest").type_name("NAME");
  command.add_option("--listen", options->listen, "Address and port; port 0: any that is free")
      .type_name("ADDRESS:PORT");
  command.footer(
      "Example:\n"
      "  frt-host serve hosts/manifests/reach.toml --listen 0.0.0.0:8000\n\n"
      "GET /healthz and /metrics answer on the same port; ctrl-C ends it and prints the counters.");
  app.add_command(command, [&app, options] { return serve(app, *options); });
}

}  // namespace frt::host
