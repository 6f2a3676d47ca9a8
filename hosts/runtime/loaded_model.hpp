// SPDX-License-Identifier: Apache-2.0
// loaded_model.hpp - from a manifest's path to a model that is ready: the way every program that
// runs a model starts.
#pragma once

#include <frt/device_status.h>
#include <frt/model.h>
#include <frt/core/manifest.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/services.hpp>
#include <frt/exec.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <frt/sender.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lm/lm_model.hpp"
#include "runtime/load_observer.hpp"
#include "runtime/manifest_loader.hpp"

namespace frt::host {

// What a program may want different.
struct LoadOptions {
  uint32_t flags = 0;             // FRT_MODEL_*
  core::RuntimeOptions runtime;   // how devices are opened
  std::vector<std::string> sets;  // path=value over the manifest
  std::string no_plugin_paths;    // core::ManifestRequest
  // How long a plugin may be silent in a setup call before the log names it.
  std::chrono::milliseconds setup_patience{std::chrono::seconds(30)};
  LoadObserver* observer = nullptr;  // borrowed; null: nobody listens
};

// Loads plugins, opens the device, makes the model. Errors carry the exit status of the stage they
// belong to (exit_code.hpp). Destruction goes backwards.
class LoadedModel {
 public:
  // `model`: the name in the manifest; may be empty if there is only one.
  // `loader` and the observer outlive the object.  [setup]
  LoadedModel(ManifestLoader& loader, const std::string& manifest_path, const std::string& model,
              const LoadOptions& options = {});
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const std::string& name() const noexcept { return name_; }
  const Context& context() const noexcept { return context_; }
  const frt_model_v1& table() const noexcept { return *model_.table; }
  frt_model handle() const noexcept { return model_.handle; }
  // The id of its plugin.
  const std::string& plugin() const noexcept { return model_.plugin->loaded().card.id; }
  const core::Runtime& runtime() const noexcept { return *runtime_; }
  frt_model_info info() const;
  // The model's extension `id`, checked, or nothing if it has none.
  template <HasContract Table>
  std::optional<Table> extension(const char* id) const {
    return find_extension<Table>(table(), handle(), id, sender());
  }
  // Watches `call` of its plugin until the result is destroyed (core/services.hpp).  [setup]
  core::SetupWatch watch(const char* call) const { return model_.plugin->watch(call); }
  // "model 'chat' (plugin acme.fast)", for errors.
  std::string sender() const { return model_sender(name_, plugin()); }
  // The model as a language model. Throws if it is none.
  LmModel language_model() const;

  // One more model of the same manifest, on its own device or on the same one; it lives as long as
  // this object.
  struct Companion {
    std::string name;
    Context context;
    core::RuntimeModel made;
    LmModel language_model() const;
  };
  // Throws if the manifest has no such model. Name after name, in any order.  [setup]
  const Companion& load_also(const std::string& name);

  // What the model's device is doing now: zeros where its backend does not tell.
  frt_device_status device_status() const;
  // Seconds from the constructor's start to ready.
  double load_seconds() const noexcept { return load_seconds_; }

 private:
  void choose(const core::Manifest& manifest, const std::string& model);
  Companion create(const core::ModelSpec& spec, uint32_t flags);
  void report_ready(const Companion& made, double seconds);

  LoadObserver silent_;
  LoadObserver& observer_;
  core::HostServices services_;
  std::unique_ptr<core::Runtime> runtime_;
  std::string name_, device_;
  Context context_;
  core::RuntimeModel model_;
  std::vector<std::unique_ptr<Companion>> companions_;
  double load_seconds_ = 0;
};

}  // namespace frt::host
