// SPDX-License-Identifier: Apache-2.0
// runtime.hpp - a manifest at work inside another program, its devices and its loaded models.
//
// A device has one driver at a time, which need not be the same thread each time, and whoever makes
// or destroys a model is one. Policies take turns (Device::turn()); a language model's
// engine drives it alone, as long as its EngineLease lives. A model that is let go meanwhile is
// destroyed when the lease ends.
#pragma once

#include <frt/core/runtime.hpp>
#include <frt/core/services.hpp>
#include <frt/exec.hpp>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "embed/call.hpp"
#include "runtime/manifest_loader.hpp"

namespace frt::embed {

class Instance;
class Lm;
class OpenDevice;
class Policy;
class Server;

// Who drives a language model.
enum class EngineUser { kProgram, kServer };

class Device {
 public:
  explicit Device(const core::RuntimeDevice& opened);

  const core::RuntimeDevice& opened() const noexcept { return opened_; }
  const Context& context() const noexcept { return context_; }
  // What devices are told of.
  frt_runtime_device facts() const noexcept;

  // Of whoever submits work without a lease.
  [[nodiscard]] std::unique_lock<std::mutex> turn() { return std::unique_lock(turn_); }
  // Throws FRT_ERR_BAD_STATE while an engine drives it; waits for one that is ending.
  void require_no_engine();
  // Who the engine belongs to: once that is gone, the engine is ending.
  void set_engine_owner(std::weak_ptr<void> owner);

 private:
  friend class EngineLease;
  friend class Instance;
  friend class SharedLease;

  const core::RuntimeDevice& opened_;
  Context context_;
  frt_device_info info_;
  std::mutex turn_;
  std::mutex mutex_;  // of what follows
  std::condition_variable freed_;
  std::string engine_;  // the model whose engine drives it
  EngineUser user_ = EngineUser::kProgram;
  bool owned_ = false;
  std::weak_ptr<void> owner_;
  uint32_t shared_ = 0;  // who takes turns on it
  std::vector<core::RuntimeModel> leaving_;
};

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  static constexpr const char* kNoun = "runtime";

  Runtime(std::shared_ptr<core::Log> log, const frt_runtime_options& options);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  core::Log& log() noexcept { return *log_; }
  const std::shared_ptr<core::Log>& log_owner() const noexcept { return log_; }
  const core::Manifest& manifest() const noexcept { return runtime_->manifest(); }
  const core::Runtime& core() const noexcept { return *runtime_; }
  const std::vector<std::unique_ptr<Device>>& devices() const noexcept { return devices_; }
  std::string model_name(const char* name) const;

  std::shared_ptr<Instance> instance(const std::string& name);
  std::shared_ptr<Lm> lm(const std::string& name, const frt_lm_options& options);
  std::shared_ptr<Policy> policy(const std::string& name);
  // Listens, loads the models and serves them.
  std::shared_ptr<Server> serve(const frt_server_options& options);
  // NULL: the only open one. Throws FRT_ERR_NOT_FOUND, FRT_ERR_INVALID_ARGUMENT.
  std::shared_ptr<OpenDevice> open_device(const char* name);

 private:
  Device& device(const char* name) const;
  std::shared_ptr<Instance> instance_locked(const std::string& name);

  std::shared_ptr<core::Log> log_;
  core::Registry registry_;
  host::ManifestLoader loader_;
  core::HostServices services_;
  std::unique_ptr<core::Runtime> runtime_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::mutex setup_;  // of what follows
  std::map<std::string, std::weak_ptr<Instance>> instances_;
  std::map<std::string, std::weak_ptr<Lm>> lms_;
  std::map<std::string, std::weak_ptr<Policy>> policies_;
};

// A loaded model.
class Instance {
 public:
  static constexpr const char* kNoun = "instance";

  Instance(std::shared_ptr<Runtime> runtime, const std::string& name);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  Runtime& runtime() const noexcept { return *runtime_; }
  const std::shared_ptr<core::Log>& log_owner() const noexcept { return runtime_->log_owner(); }
  Device& device() const noexcept { return *device_; }
  const std::string& name() const noexcept { return name_; }
  const core::RuntimeModel& made() const noexcept { return made_; }
  const std::string& plugin() const noexcept { return made_.plugin->loaded().card.id; }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::string name_;
  Device* device_;
  core::RuntimeModel made_;
};

// The right of one engine to drive a device.
class EngineLease {
 public:
  // Throws FRT_ERR_BAD_STATE if the device has another driver.
  EngineLease(std::shared_ptr<Instance> instance, EngineUser user);
  ~EngineLease();
  EngineLease(const EngineLease&) = delete;
  EngineLease& operator=(const EngineLease&) = delete;

  const std::shared_ptr<Instance>& instance() const noexcept { return instance_; }

 private:
  std::shared_ptr<Instance> instance_;
};

// The right to take turns on a device: of a policy, of an open device.
class SharedLease {
 public:
  // Throws FRT_ERR_BAD_STATE if an engine drives the device, which outlives this object.
  explicit SharedLease(Device& device);
  ~SharedLease();
  SharedLease(const SharedLease&) = delete;
  SharedLease& operator=(const SharedLease&) = delete;

 private:
  Device& device_;
};

// A device that a program works on itself.
class OpenDevice {
 public:
  static constexpr const char* kNoun = "device";

  OpenDevice(std::shared_ptr<Runtime> runtime, Device& device)
      : runtime_(std::move(runtime)), device_(device), lease_(device) {}

  const std::shared_ptr<core::Log>& log_owner() const noexcept { return runtime_->log_owner(); }
  const Device& device() const noexcept { return device_; }

 private:
  std::shared_ptr<Runtime> runtime_;
  Device& device_;
  SharedLease lease_;
};

}  // namespace frt::embed
