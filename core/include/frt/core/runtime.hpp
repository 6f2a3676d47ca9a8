// SPDX-License-Identifier: Apache-2.0
// runtime.hpp - a manifest at work: plugins loaded and opened, devices opened, models made.
//
//     Registry registry(options);
//     Manifest manifest = load_manifest(path, request);   // request.schemas = &registry
//     Runtime runtime(std::move(manifest), registry, services);
//     frt_context context = runtime.device("gpu0").context;
//
// Everything is opened in the constructor or nothing stays open: on failure what was opened is
// closed again. Destruction goes the other way: models, contexts, plugins. Where a model left
// something on a device, the device and its backend stay open until the process ends, and the log
// names the model's plugin.
#pragma once

#include <frt/capsule.h>
#include <frt/exec.h>
#include <frt/model.h>
#include <frt/core/digest.hpp>
#include <frt/core/manifest.hpp>
#include <frt/core/plugin.hpp>
#include <frt/core/registry.hpp>
#include <frt/core/services.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace frt::core {

// One opened device of the manifest.
struct RuntimeDevice {
  const DeviceSpec* spec = nullptr;
  const OpenPlugin* plugin = nullptr;
  frt_context context = nullptr;
  std::string choice;               // why this backend
  std::vector<std::string> others;  // why not the others (automatic devices)
  Config options;
};

// One model of the manifest.
struct RuntimeModel {
  const OpenPlugin* plugin = nullptr;
  const frt_model_v1* table = nullptr;  // a checked copy, of the plugin's life
  frt_model handle = nullptr;
};

// What the model says about itself, its texts checked. `sender` names it in errors.  [any]
frt_model_info describe_model(const frt_model_v1& table, frt_model model,
                              const std::string& sender);

// What tells the model from others, by its own word, its texts checked. `plugin` is the one that
// made it; `sender` names the model in errors.  [setup]
std::vector<Fingerprint::Field> model_fingerprint(const frt_capsule_v1& capsule, frt_model model,
                                                  const OpenPlugin& plugin,
                                                  const std::string& sender);

// One row of the start-up summary.
struct SummaryRow {
  std::string what;    // "plugin", "device"
  std::string name;    // id or the user's name
  std::string status;  // "loaded", "rejected", "shadowed", "open"
  std::string detail;  // version and path, reason, backend and product name
};

struct RuntimeOptions {
  bool all_devices = false;  // not only those that models use
  bool eager = false;        // no device captures, whatever the manifest says
  // Given a backend's tables when its device is opened, returns what to register in place of its
  // kernels: its own table, or one of the caller's that wraps it, to watch what is launched.
  std::function<const frt_kernels_v1*(const frt_backend_v1& backend, const frt_kernels_v1* kernels)>
      watch{};
};

class Runtime {
 public:
  // `registry`, `services` and what `options.watch` returns outlive the runtime.  [setup]
  Runtime(Manifest manifest, Registry& registry, HostServices& services,
          RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Manifest& manifest() const noexcept { return manifest_; }
  // Throws FRT_ERR_NOT_FOUND if it is not in the manifest or not open.
  const RuntimeDevice& device(std::string_view name) const;
  // The opened plugin of a model of the manifest.
  const OpenPlugin& model_plugin(std::string_view model) const;
  // The opened plugin of an environment of the manifest.
  const OpenPlugin& environment_plugin(std::string_view environment) const;
  // The opened plugin called `id`, or null.
  const OpenPlugin* plugin(std::string_view id) const noexcept;
  std::vector<SummaryRow> summary() const;

  // Makes model `name` of the manifest on its device and binds its capsules. `flags`:
  // FRT_MODEL_*. Throws what the plugin reports, with model and plugin before the text.  [setup]
  RuntimeModel create_model(const std::string& name, uint32_t flags = 0) const;
  // Destroys it, before the runtime.  [setup]
  void destroy_model(const RuntimeModel& model) const noexcept;

  // Tells files of capsules of `object`, made by the plugin of manifest model `model`, from those
  // of others: binds digests of the files of backend and plugin and the model's own fields, which
  // are computed when they are first needed (core/capsules.hpp). Returns its arena, or null if the
  // model has no capsules.  [setup]
  frt_state bind_capsules(std::string_view model, const frt_model_v1& table,
                          frt_model object) const;

 private:
  OpenPlugin& open(const std::string& id);
  void open_device(const DeviceSpec& spec);
  // Says in the log that a plugin's card does not fit the device that the manifest gives it.
  void warn_of_targets(const Card& card, const RuntimeDevice& device) const;
  static void close(const RuntimeDevice& device);
  void report_open(const RuntimeDevice& device, const char* problem) const;

  Manifest manifest_;
  Registry& registry_;
  HostServices& services_;
  RuntimeOptions options_;
  std::vector<std::unique_ptr<OpenPlugin>> plugins_;
  std::vector<RuntimeDevice> devices_;
};

// The best plugin for device `ordinal` that is not the processor this program runs on. `open` gives
// an opened plugin or throws. Throws FRT_ERR_DEVICE with every candidate's reason and the way to
// ask for the processor explicitly.  [setup]
BackendChoice choose_backend(Registry& registry, uint32_t ordinal,
                             const std::function<OpenPlugin&(const std::string& id)>& open);

}  // namespace frt::core
