// SPDX-License-Identifier: Apache-2.0
// Stages and their exit status: manifest (3), plugins (4), device (5), model (1).
#include "runtime/loaded_model.hpp"

#include <fmt/format.h>
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/state.hpp>

#include <chrono>
#include <utility>

#include "runtime/checkpoint_folder.hpp"
#include "runtime/exit_code.hpp"

namespace frt::host {
namespace {

// Which stage an error of the runtime belongs to: it loads plugins and opens devices.
ExitCode runtime_stage(frt_status status) {
  switch (status) {
    case FRT_ERR_DEVICE:
    case FRT_ERR_DEVICE_LOST:
    case FRT_ERR_OUT_OF_RANGE:
    case FRT_ERR_OUT_OF_MEMORY:
      return ExitCode::kDevice;
    default:
      return ExitCode::kPlugin;
  }
}

// A model that does not load is a failed run, unless it is the device that has no room or fails, or
// the plugin whose tables cannot be read.
ExitCode model_stage(frt_status status) {
  switch (status) {
    case FRT_ERR_DEVICE:
    case FRT_ERR_DEVICE_LOST:
    case FRT_ERR_OUT_OF_MEMORY:
      return ExitCode::kDevice;
    case FRT_ERR_ABI:
      return ExitCode::kPlugin;
    default:
      return ExitCode::kFailed;
  }
}

std::string model_names(const core::Manifest& manifest) {
  std::string names;
  for (const auto& model : manifest.models) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

}  // namespace

LoadedModel::LoadedModel(ManifestLoader& loader, const std::string& manifest_path,
                         const std::string& model, const LoadOptions& options)
    : observer_(options.observer ? *options.observer : silent_),
      services_(loader.log(),
                [this](std::string_view, std::string_view phase, uint32_t unit, uint64_t done,
                       uint64_t total) -> frt_status {
                  observer_.progress(phase, unit, done, total);
                  return observer_.cancelled() ? FRT_ERR_CANCELLED : FRT_OK;
                }) {
  const auto start = std::chrono::steady_clock::now();
  services_.setup_patience = options.setup_patience;
  core::Manifest manifest = loader.load(manifest_path, options.sets, options.no_plugin_paths);
  loader.warn_of_rejected_plugins();
  stage(ExitCode::kManifest, [&] { choose(manifest, model); });
  const core::ModelSpec spec = *manifest.find_model(name_);
  device_ = spec.device();

  observer_.progress("plugins", FRT_PROGRESS_ITEMS, 0, 1);
  try {
    runtime_ = std::make_unique<core::Runtime>(std::move(manifest), loader.registry(), services_,
                                               options.runtime);
  } catch (const core::DiagnosticError&) {
    throw;
  } catch (const Error& error) {
    observer_.phase_ended();
    std::string text = error.what();
    if (error.status() == FRT_ERR_DEVICE && is_checkpoint_folder(manifest_path)) {
      text += fmt::format("\n{} is a folder: add --set device.{}.backend=frt.cpu", manifest_path,
                          kFolderName);
    }
    throw ExitError(runtime_stage(error.status()), error.status(), text);
  }
  observer_.progress("plugins", FRT_PROGRESS_ITEMS, 1, 1);
  const Companion made = create(spec, options.flags);
  context_ = made.context;
  model_ = made.made;
  load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report_ready(made, load_seconds_);
}

LoadedModel::Companion LoadedModel::create(const core::ModelSpec& spec, uint32_t flags) {
  Companion made;
  made.name = spec.name;
  made.context = Context(core::exec_table(), runtime_->device(spec.device()).context);
  stage(ExitCode::kPlugin,
        [&] { runtime_->model_plugin(spec.name).require<frt_model_v1>(FRT_EXT_MODEL); });
  try {
    made.made = runtime_->create_model(spec.name, flags);
  } catch (const Error& error) {
    observer_.phase_ended();
    throw ExitError(model_stage(error.status()), error.status(), error.what());
  }
  observer_.phase_ended();
  if (observer_.cancelled()) {  // behind the model's last report
    runtime_->destroy_model(made.made);
    throw Error(FRT_ERR_CANCELLED, "stopped on request");
  }
  made.context.ready();
  return made;
}

void LoadedModel::report_ready(const Companion& made, double seconds) {
  const std::string& device_name = runtime_->manifest().find_model(made.name)->device();
  const core::RuntimeDevice& device = runtime_->device(device_name);
  const core::LoadedPlugin& plugin = made.made.plugin->loaded();
  const frt_model_info facts = core::describe_model(*made.made.table, made.made.handle,
                                                    model_sender(made.name, plugin.card.id));
  observer_.ready({made.name, device_name, device.plugin->loaded().card.id,
                   made.context.info().device->name, facts.architecture, facts.weight_bytes,
                   facts.state_bytes, seconds});
}

const LoadedModel::Companion& LoadedModel::load_also(const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  const core::Manifest& manifest = runtime_->manifest();
  const core::ModelSpec* spec = manifest.find_model(name);
  if (!spec) {
    throw ExitError(
        ExitCode::kManifest, FRT_ERR_NOT_FOUND,
        manifest.path.string() + " has no model '" + name + "'; it has: " + model_names(manifest));
  }
  companions_.push_back(std::make_unique<Companion>(create(*spec, 0)));
  report_ready(*companions_.back(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return *companions_.back();
}

LmModel LoadedModel::Companion::language_model() const {
  return LmModel(context, core::state_table(), core::capsules_table(), made.table, made.handle,
                 name, made.plugin->loaded().card.id);
}

LoadedModel::~LoadedModel() {
  while (!companions_.empty()) {
    runtime_->destroy_model(companions_.back()->made);
    companions_.pop_back();
  }
  if (model_.handle) runtime_->destroy_model(model_);
}

void LoadedModel::choose(const core::Manifest& manifest, const std::string& model) {
  if (manifest.models.empty()) {
    throw Error(FRT_ERR_NOT_FOUND, manifest.path.string() +
                                       " has no model; add a table [model.NAME] with plugin, "
                                       "device and checkpoint");
  }
  if (model.empty() && manifest.models.size() > 1) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                manifest.path.string() + " has " + std::to_string(manifest.models.size()) +
                    " models; choose one with --model: " + model_names(manifest));
  }
  name_ = model.empty() ? manifest.models.front().name : model;
  if (!manifest.find_model(name_)) {
    throw Error(FRT_ERR_NOT_FOUND, manifest.path.string() + " has no model '" + name_ +
                                       "'; it has: " + model_names(manifest));
  }
}

frt_model_info LoadedModel::info() const {
  return core::describe_model(table(), handle(), sender());
}

frt_device_status LoadedModel::device_status() const {
  const core::RuntimeDevice& device = runtime_->device(device_);
  const auto* table = device.plugin->find<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
  if (!table) return {};
  try {
    return ask<frt_device_status>(device.plugin->sender(), [&](frt_device_status* status) {
      return table->read(device.plugin->handle(), device.spec->ordinal(), status, nullptr);
    });
  } catch (const Error&) {
    return {};  // no device status is no reason to stop
  }
}

LmModel LoadedModel::language_model() const {
  return LmModel(context_, core::state_table(), core::capsules_table(), model_.table, model_.handle,
                 name_, plugin());
}

}  // namespace frt::host
