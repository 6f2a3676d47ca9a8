// SPDX-License-Identifier: Apache-2.0
// frt-host serve: language models behind HTTP, a policy behind the openpi websocket protocol, or
// both, each on its own listener and threads. [host.http] and [host.robot] of the manifest say
// which; without either, the role of its model does. Where they listen goes to stderr, a policy's
// counters too, at the end.
#include <fmt/format.h>
#include <frt/role/lm.h>
#include <frt/role/policy.h>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/allocator.hpp"
#include "cli/terminal/hangup.hpp"
#include "cli/terminal/interrupted.hpp"
#include "cli/terminal/memory_reserve.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"
#include "net/address.hpp"
#include "robot/policy_inputs.hpp"
#include "runtime/about.hpp"
#include "runtime/lm_server.hpp"
#include "runtime/robot_settings.hpp"

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

// SIGTERM asks a service to end, and it did.
ExitCode stopped_status() {
  return interrupting_signal() == SIGTERM ? ExitCode::kOk : interrupted_status();
}

// The metrics of a policy where the models beside it have theirs; `models` may be null.
class SharedMetrics {
 public:
  SharedMetrics(LmServer* models, std::string policy, const PolicyServer& server)
      : models_(models), policy_(std::move(policy)) {
    if (models_) models_->set_policy_metrics(policy_, [&server] { return server.metrics(); });
  }
  ~SharedMetrics() {
    if (models_) models_->set_policy_metrics(policy_, nullptr);
  }
  SharedMetrics(const SharedMetrics&) = delete;
  SharedMetrics& operator=(const SharedMetrics&) = delete;

 private:
  LmServer* const models_;
  const std::string policy_;
};

// `models`: what is served beside it; may be null.
ExitCode serve_policy(App& app, const RobotSettings& settings, const LoadedModel& loaded,
                      LmServer* models = nullptr) {
  const PolicyModel policy = policy_of(loaded);
  PolicyService service(policy, settings.service);
  stage(ExitCode::kManifest, [&] { service.check_options(); });
  const InterruptGuard interrupt;
  if (settings.warm_up) warm_up(app, service);
  ServerOptions server_options = settings.server;
  server_options.metadata = service.metadata();
  const std::string realtime = apply_realtime(settings.realtime);
  PolicyServer server(server_options, [&service] { return service.metrics(); });
  const SharedMetrics shared(models, settings.model, server);
  const std::string address = server_options.listen.substr(0, server_options.listen.rfind(':'));
  if (!app.options().quiet) {
    const std::string inputs = inputs_text(policy);
    print_err("this policy reads: {}\n", inputs.empty() ? "it does not say" : inputs);
  }
  print_err("serving {} on ws://{}:{} (openpi protocol){}{}\n", policy.name(), address,
            server.port(), realtime.empty() ? "" : "; ", realtime);
  std::fflush(stderr);

  bool lost = false;
  const EndAllowance replies(server_options.write_timeout);  // that are being sent
  server.run(
      [&](const PolicyServer::Request& request) {
        fill_memory_reserve();
        // A request that is being answered may end, as long as its answer is worth sending.
        const EndAllowance answer(settings.server.deadline);
        try {
          return service.handle(request);
        } catch (const Error& error) {
          // Nothing will work any more: end, so that whoever watches can start again.
          lost = lost || error.status() == FRT_ERR_DEVICE_LOST;
          throw;
        }
      },
      [&] {
        fill_memory_reserve();  // requests of others may have used it up
        lost = lost || (models && models->lost());
        return lost || InterruptGuard::requested();
      });

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
  return stopped_status();
}

// What a command line says, over what the manifest says.
void override_listen(std::string& listen, const std::string& given) {
  if (given.empty()) return;
  stage(ExitCode::kUsage, [&] { parse_listen(given); });
  listen = given;
}

ExitCode serve_policy_alone(App& app, const core::Manifest& manifest, const ServeOptions& options) {
  RobotSettings settings = robot_settings(manifest);
  override_listen(settings.server.listen, options.listen);
  const LoadedModel loaded =
      load_model(app, options.manifest, options.model.empty() ? settings.model : options.model);
  return serve_policy(app, settings, loaded);
}

void say_serving(const LmServer& server) {
  std::string names;
  for (const std::string& name : server.models()) names += (names.empty() ? "" : ", ") + name;
  print_err("serving {} on {}\n", names, server.address());
  std::fflush(stderr);
}

// The main thread watches for signals, which an InterruptGuard keeps, and for a lost device.
ExitCode wait_for_end(const LmServer& server) {
  while (!InterruptGuard::requested()) {
    if (server.lost())
      throw ExitError(ExitCode::kDevice, FRT_ERR_DEVICE_LOST, "the device is lost");
    fill_memory_reserve();  // a request may have used it up
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return stopped_status();
}

// Stops a server while the models that it serves are still there. Answers may end for as long as
// the manifest says, and capsules reach the disk; between and after these the program waits for no
// plugin (signals.hpp).
class Stopping {
 public:
  explicit Stopping(LmServer& server) : server_(server) {}
  ~Stopping() {
    {
      const EndAllowance answers(server_.drain_time());
      server_.drain();
    }
    {
      const EndAllowance files(kKeepTime);  // of clients that have left
      server_.wait_for_files();
    }
    server_.stop();
    const EndAllowance files(kKeepTime);
    server_.keep();
  }
  Stopping(const Stopping&) = delete;
  Stopping& operator=(const Stopping&) = delete;

 private:
  LmServer& server_;
};

// A plugin may be tried in a child process, and a fork beside the server's threads may hang: what
// will be loaded is loaded before them. What a manifest names was loaded when it was checked.
void load_backends_to_choose_from(core::Registry& registry, const core::Manifest& manifest) {
  const bool chooses = std::ranges::any_of(
      manifest.devices, [](const core::DeviceSpec& device) { return device.automatic(); });
  if (chooses) registry.load_all(FRT_PLUGIN_BACKEND);
}

// What the manifest says of HTTP now. Nothing of a plugin is asked: this runs beside the main
// thread.
HttpSettings settings_now(App& app, const std::filesystem::path& manifest) {
  core::ManifestRequest request;
  request.hosts = app.manifests().host_schemas();
  request.sets = app.options().sets;
  request.environments = app.environments().names();
  return http_settings(core::load_manifest(manifest, request));
}

// SIGHUP: keys, their limits, the certificate and the log file. What is wrong with them changes
// nothing.
void reload(App& app, const core::Manifest& manifest, LmServer& server) noexcept {
  try {
    server.reload(settings_now(app, manifest.path));
    app.log().write("http", FRT_LOG_INFO,
                    "the keys, their limits, the certificate and the log were read again");
  } catch (const std::exception& error) {
    app.log().write("http", FRT_LOG_ERROR,
                    std::string("nothing is changed on SIGHUP: ") + error.what());
  }
}

// Language models, and with `policy` a policy beside them.
ExitCode serve_models(App& app, const core::Manifest& manifest, const ServeOptions& options,
                      const RobotSettings* policy) {
  HttpSettings settings = http_settings(manifest);
  HttpChoice choice{.listen = options.listen};
  if (!options.model.empty()) choice.models = {options.model};
  stage(ExitCode::kUsage, [&] { choose(settings, choice); });
  load_backends_to_choose_from(app.registry(), manifest);
  // A request of a robot allocates, and must not wait for a trim.
  std::optional<AllocatorTrim> trim;
  if (!policy) trim.emplace();
  LmServer server(app.log(), manifest, std::move(settings));
  const HangupWatch hangup([&] { reload(app, manifest, server); });
  print_err("loading; {} answers 503 until then\n", server.address());
  if (policy) server.set_policy(policy->model, "loading");
  const std::vector<std::string>& names = server.models();
  LoadedModel loaded = load_model(app, options.manifest, policy ? policy->model : names.front());
  const Stopping stopping(server);
  for (const std::string& name : names) {
    server.add(name, name == loaded.name() ? loaded.language_model()
                                           : loaded.load_also(name).language_model());
  }
  if (policy) server.set_policy(policy->model, "ready");
  server.set_about(about_json(loaded.runtime(), "frt-host"));
  if (policy) {
    say_serving(server);
    return serve_policy(app, *policy, loaded, &server);
  }
  const InterruptGuard interrupt;  // before anybody is told that there is something to end
  say_serving(server);
  return wait_for_end(server);
}

// One language model that is loaded already, with the defaults of [host.http].
ExitCode serve_loaded(App& app, const core::Manifest& manifest, const ServeOptions& options,
                      const LoadedModel& loaded) {
  HttpSettings settings = http_settings(manifest);
  stage(ExitCode::kUsage, [&] { choose(settings, {{loaded.name()}, options.listen}); });
  const AllocatorTrim trim;
  LmServer server(app.log(), manifest, std::move(settings));
  const HangupWatch hangup([&] { reload(app, manifest, server); });
  const Stopping stopping(server);
  server.add(loaded.name(), loaded.language_model());
  server.set_about(about_json(loaded.runtime(), "frt-host"));
  const InterruptGuard interrupt;  // before anybody is told that there is something to end
  say_serving(server);
  return wait_for_end(server);
}

[[noreturn]] void refuse_to_choose(const std::string& what) {
  throw ExitError(ExitCode::kManifest, FRT_ERR_INVALID_ARGUMENT,
                  what +
                      "; add [host.http] with model = \"NAME\" to serve language models, or "
                      "[host.robot] with model = \"NAME\" to serve a policy");
}

// The manifest has neither [host.http] nor [host.robot]: the role of its model says which of them,
// with its defaults, is meant.
ExitCode serve_by_role(App& app, const core::Manifest& manifest, const ServeOptions& options) {
  if (options.model.empty() && manifest.models.size() > 1) {
    refuse_to_choose(manifest.path.string() + ": " + std::to_string(manifest.models.size()) +
                     " models, and neither [host.http] nor [host.robot] says which is served how");
  }
  const LoadedModel loaded = load_model(app, options.manifest, options.model);
  const bool language_model = loaded.extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM).has_value();
  const bool policy = loaded.extension<frt_role_policy_v1>(FRT_EXT_ROLE_POLICY).has_value();
  if (language_model && policy) {
    refuse_to_choose(loaded.sender() + " is both a language model and a policy");
  }
  if (language_model) return serve_loaded(app, manifest, options, loaded);
  if (!policy) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_UNSUPPORTED,
                    loaded.sender() + " is neither a language model (it offers no " FRT_EXT_ROLE_LM
                                      ") nor a policy (no " FRT_EXT_ROLE_POLICY
                                      "); serve needs a model with one of these roles");
  }
  RobotSettings settings = robot_settings(manifest);
  override_listen(settings.server.listen, options.listen);
  return serve_policy(app, settings, loaded);
}

ExitCode serve(App& app, const ServeOptions& options) {
  bound_allocator();
  const core::Manifest manifest = app.manifests().load(options.manifest);
  const bool models = manifest.find_host("http") != nullptr;
  const bool robot = manifest.find_host("robot") != nullptr;
  if (!models && !robot) return serve_by_role(app, manifest, options);
  if (!models) return serve_policy_alone(app, manifest, options);
  if (!robot) return serve_models(app, manifest, options, nullptr);
  if (!options.listen.empty() || !options.model.empty()) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "--listen and --model do not say whether they mean [host.http] or "
                    "[host.robot]; use --set host.http.listen=... instead");
  }
  const RobotSettings policy = robot_settings(manifest);
  if (policy.model.empty()) {
    throw ExitError(ExitCode::kManifest, FRT_ERR_INVALID_ARGUMENT,
                    manifest.path.string() + ": [host.robot] names no model; add model");
  }
  return serve_models(app, manifest, options, &policy);
}

}  // namespace

void add_serve_command(App& app) {
  auto options = std::make_shared<ServeOptions>();
  Command command = app.program().add_subcommand(
      "serve", "Serve language models over HTTP, a policy to robots, or both");
  command
      .add_option("manifest", options->manifest,
                  "Read this manifest (TOML), or this folder with a checkpoint; [host.http] and "
                  "[host.robot] say what is served, else the role of the only model")
      .required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  command
      .add_option("--listen", options->listen,
                  "Listen on this address and port; port 0: any that is free; language models also "
                  "take unix:PATH")
      .type_name("ADDRESS:PORT");
  command.examples(
      {"serve checkpoints/my-model", "serve share/frt/manifests/serve-demo.toml",
       "serve share/frt/manifests/reach.toml --listen 0.0.0.0:8000"},
      "GET /health (of a policy: /healthz) and /metrics answer on the same port; ctrl-C ends it.");
  app.add_command(command, [&app, options] { return serve(app, *options); });
}

}  // namespace frt::host
