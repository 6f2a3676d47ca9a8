// SPDX-License-Identifier: Apache-2.0
#include "embed/runtime.hpp"

#include <dlfcn.h>
#include <frt/core/exec_table.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "embed/lm.hpp"
#include "embed/policy.hpp"
#include "embed/server.hpp"
#include "runtime/about.hpp"
#include "runtime/http_settings.hpp"
#include "runtime/lm_settings.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::embed {
namespace {

namespace fs = std::filesystem;

// The plugins that were installed with this library; the program may lie anywhere.
fs::path plugins_beside_library() {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<const void*>(&frt_embed_version), &found) == 0) return {};
  std::error_code ignored;
  const fs::path library = fs::canonical(found.dli_fname, ignored);
  return library.empty() ? fs::path() : library.parent_path() / "frt" / "plugins";
}

core::RegistryOptions registry_options(core::Log& log, const frt_runtime_options& given) {
  core::RegistryOptions options;
  for (const std::string& folder :
       texts_of(given.plugin_folders, given.plugin_folder_count, "plugin_folders")) {
    options.plugin_folders.emplace_back(folder);
  }
  options.folders_name = "plugin_folders";
  options.own_folder = plugins_beside_library();
  options.probing = (given.flags & FRT_RUNTIME_TRY_PLUGINS) != 0 ? core::Probing::kUnlocked
                                                                 : core::Probing::kNever;
  options.log = &log;
  return options;
}

core::ProgressSink progress_sink(const frt_runtime_options& given) {
  if (!given.progress) return {};
  return [call = given.progress, user = given.progress_user](
             std::string_view, std::string_view phase, uint32_t unit, uint64_t done,
             uint64_t total) -> frt_status {
    const std::string name(phase);
    return call(user, name.c_str(), unit, done, total) == FRT_OK ? FRT_OK : FRT_ERR_CANCELLED;
  };
}

// A manifest says what other hosts do with its models, too.
host::LoaderOptions loader_options(const frt_runtime_options& given) {
  return {{host::lm_host_kind(), host::http_host_kind(), host::robot_host_kind()},
          texts_of(given.sets, given.set_count, "sets")};
}

core::Manifest read_manifest(host::ManifestLoader& loader, const frt_runtime_options& given) {
  if (!given.manifest == !given.manifest_text) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "give exactly one of manifest and manifest_text");
  }
  if (given.manifest) return loader.load(given.manifest);
  const fs::path base = given.base_folder ? fs::path(given.base_folder) : fs::current_path();
  return loader.load_text(given.manifest_text, fs::absolute(base) / "manifest.toml");
}

std::string names_of(const core::Manifest& manifest) {
  std::string names;
  for (const core::ModelSpec& model : manifest.models) {
    names += (names.empty() ? "" : ", ") + model.name;
  }
  return names;
}

template <class Object>
std::shared_ptr<Object> known(std::map<std::string, std::weak_ptr<Object>>& all,
                              const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second.lock();
}

}  // namespace

// ---- devices ----

Device::Device(const core::RuntimeDevice& opened)
    : opened_(opened),
      context_(core::exec_table(), opened.context),
      info_(*context_.info().device) {}

frt_runtime_device Device::facts() const noexcept {
  frt_runtime_device facts{};
  facts.compute_units = info_.compute_units;
  facts.name = opened_.spec->name.c_str();
  facts.backend = opened_.plugin->loaded().card.id.c_str();
  facts.product = info_.name;
  facts.architecture = info_.architecture;
  facts.memory_total = info_.memory_total;
  facts.memory_free = info_.memory_free;
  return facts;
}

void Device::require_no_engine() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return engine_.empty() || !owned_ || !owner_.expired(); });
  if (engine_.empty()) return;
  throw Error(FRT_ERR_BAD_STATE,
              "device '" + opened_.spec->name + "' is driven by the language model '" + engine_ +
                  (user_ == EngineUser::kServer ? "', which a server serves; close the server first"
                                                : "'; close it first") +
                  ", or give the other model a device of its own");
}

void Device::set_engine_owner(std::weak_ptr<void> owner) {
  const std::lock_guard lock(mutex_);
  owner_ = std::move(owner);
  owned_ = true;
}

// ---- the runtime ----

Runtime::Runtime(std::shared_ptr<core::Log> log, const frt_runtime_options& options)
    : log_(std::move(log)),
      registry_(registry_options(*log_, options)),
      loader_(registry_, *log_, loader_options(options)),
      services_(*log_, progress_sink(options)) {
  core::Manifest manifest = read_manifest(loader_, options);
  loader_.warn_of_rejected_plugins();
  const bool all_devices = (options.flags & FRT_RUNTIME_ALL_DEVICES) != 0;
  runtime_ = std::make_unique<core::Runtime>(std::move(manifest), registry_, services_,
                                             core::RuntimeOptions{.all_devices = all_devices});
  std::vector<std::string> used;
  for (const core::ModelSpec& model : runtime_->manifest().models) used.push_back(model.device());
  for (const core::DeviceSpec& device : runtime_->manifest().devices) {
    const bool open = all_devices || std::ranges::find(used, device.name) != used.end();
    if (!open) continue;
    devices_.push_back(std::make_unique<Device>(runtime_->device(device.name)));
  }
}

Device& Runtime::device(const char* name) const {
  std::string names;
  for (const auto& device : devices_) {
    if (name && device->opened().spec->name == name) return *device;
    names += (names.empty() ? "" : ", ") + device->opened().spec->name;
  }
  if (!name && devices_.size() == 1) return *devices_.front();
  const std::string there = names.empty() ? "no device is open; FRT_RUNTIME_ALL_DEVICES opens "
                                            "those that no model uses"
                                          : "open are: " + names;
  if (!name) throw Error(FRT_ERR_INVALID_ARGUMENT, "name a device; " + there);
  throw Error(FRT_ERR_NOT_FOUND, "no device '" + std::string(name) + "' is open; " + there);
}

std::string Runtime::model_name(const char* name) const {
  const core::Manifest& all = manifest();
  if (!name && all.models.size() != 1) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, all.path.string() + " has " +
                                              std::to_string(all.models.size()) +
                                              " models; name one: " + names_of(all));
  }
  const std::string chosen = name ? name : all.models.front().name;
  if (!all.find_model(chosen)) {
    throw Error(FRT_ERR_NOT_FOUND,
                all.path.string() + " has no model '" + chosen + "'; it has: " + names_of(all));
  }
  return chosen;
}

std::shared_ptr<Instance> Runtime::instance(const std::string& name) {
  const std::lock_guard lock(setup_);
  return instance_locked(name);
}

std::shared_ptr<Instance> Runtime::instance_locked(const std::string& name) {
  auto instance = known(instances_, name);
  if (instance) return instance;
  instance = std::make_shared<Instance>(shared_from_this(), name);
  instances_[name] = instance;
  return instance;
}

std::shared_ptr<Lm> Runtime::lm(const std::string& name, const frt_lm_options& options) {
  const std::lock_guard lock(setup_);
  auto lm = known(lms_, name);
  if (lm) return lm;
  const auto instance = instance_locked(name);
  lm = std::make_shared<Lm>(instance, options);
  instance->device().set_engine_owner(lm);
  lms_[name] = lm;
  return lm;
}

std::shared_ptr<Policy> Runtime::policy(const std::string& name) {
  const std::lock_guard lock(setup_);
  auto policy = known(policies_, name);
  if (policy) return policy;
  policy = std::make_shared<Policy>(instance_locked(name));
  policies_[name] = policy;
  return policy;
}

std::shared_ptr<Server> Runtime::serve(const frt_server_options& options) {
  const std::lock_guard lock(setup_);
  const auto server = std::make_shared<Server>(shared_from_this(), options);
  // All before the first is served: one that cannot be loaded ends no answer of another.
  std::vector<std::shared_ptr<Instance>> instances;
  for (const std::string& name : server->models()) instances.push_back(instance_locked(name));
  for (const auto& instance : instances) server->add(instance);
  server->set_about(host::about_json(*runtime_, "libfrt"));
  return server;
}

std::shared_ptr<OpenDevice> Runtime::open_device(const char* name) {
  const std::lock_guard lock(setup_);
  return std::make_shared<OpenDevice>(shared_from_this(), device(name));
}

// ---- models ----

Instance::Instance(std::shared_ptr<Runtime> runtime, const std::string& name)
    : runtime_(std::move(runtime)), name_(name) {
  const std::string& wanted = runtime_->manifest().find_model(name)->device();
  device_ = std::ranges::find_if(runtime_->devices(), [&](const auto& device) {
              return device->opened().spec->name == wanted;
            })->get();
  device_->require_no_engine();
  const auto turn = device_->turn();
  made_ = runtime_->core().create_model(name);
  device_->context().ready();
}

// Holds the turn from the question until the model is gone: no engine begins in between.
Instance::~Instance() {
  const auto turn = device_->turn();
  {
    const std::lock_guard lock(device_->mutex_);
    if (!device_->engine_.empty()) {
      device_->leaving_.push_back(made_);
      return;
    }
  }
  runtime_->core().destroy_model(made_);
}

// ---- leases ----

EngineLease::EngineLease(std::shared_ptr<Instance> instance, EngineUser user)
    : instance_(std::move(instance)) {
  Device& device = instance_->device();
  device.require_no_engine();
  const auto turn = device.turn();
  const std::lock_guard lock(device.mutex_);
  if (device.shared_ > 0) {
    throw Error(FRT_ERR_BAD_STATE, "device '" + device.opened().spec->name +
                                       "' has an open policy or is open itself, and a language "
                                       "model drives its device alone; close these first, or give "
                                       "'" +
                                       instance_->name() + "' a device of its own");
  }
  device.leaving_.reserve(instance_->runtime().manifest().models.size());
  device.engine_ = instance_->name();
  device.user_ = user;
}

EngineLease::~EngineLease() {
  Device& device = instance_->device();
  {
    const std::lock_guard lock(device.mutex_);
    for (const core::RuntimeModel& model : device.leaving_) {
      instance_->runtime().core().destroy_model(model);
    }
    device.leaving_.clear();
    device.engine_.clear();
    device.owned_ = false;
  }
  device.freed_.notify_all();
}

SharedLease::SharedLease(Device& device) : device_(device) {
  device_.require_no_engine();
  const std::lock_guard lock(device_.mutex_);
  ++device_.shared_;
}

SharedLease::~SharedLease() {
  const std::lock_guard lock(device_.mutex_);
  --device_.shared_;
}

}  // namespace frt::embed
