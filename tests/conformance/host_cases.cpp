// SPDX-License-Identifier: Apache-2.0
// Hosts that are not the one of this program: one that has no extension; one of the oldest version
// that works with this plugin (frt/version.hpp), whose tables end where that version's do and which
// has nothing that is optional; one of the next minor version, whose tables are longer. Each opens
// the plugin and does with it what a host does first: a device with a stream, or a model.
#include <frt/capsule.hpp>
#include <frt/contracts.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/state.hpp>
#include <frt/error.hpp>
#include <frt/exec.hpp>
#include <frt/plugin.hpp>
#include <frt/reading.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "made_model.hpp"
#include "plugin_cases.hpp"

namespace frt::conformance {
namespace {

enum class Age { kBare, kOldest, kNewer };

[[noreturn]] void fail(const std::string& text) {
  throw Error(FRT_ERR_ABI, text);
}

class OtherHost {
 public:
  explicit OtherHost(Age age) : age_(age) {
    const uint16_t oldest = FRT_ABI_MAJOR == 0 ? FRT_ABI_MINOR : 0;  // frt/version.hpp
    host_.known = {sizeof(frt_host), FRT_ABI_MAJOR, FRT_ABI_MINOR, this, extension};
    if (age == Age::kOldest) host_.known.abi_minor = oldest;
    if (age == Age::kNewer) {
      host_.known.struct_size = sizeof(Longer);
      ++host_.known.abi_minor;
    }
    std::memset(host_.more, kPoison, sizeof(host_.more));
    if (age == Age::kBare) return;
    add(FRT_EXT_EXEC, *core::exec_table());
    add(FRT_EXT_STATE, *core::state_table());
    add(FRT_EXT_CAPSULES, *core::capsules_table());
    if (age == Age::kOldest) return;
    add(FRT_EXT_LOG, frt_log_v1{sizeof(frt_log_v1), 0, nullptr,
                                [](void*, const char*, frt_log_level, const char*) {}});
    add(FRT_EXT_PROGRESS, frt_progress_v1{sizeof(frt_progress_v1), 0, nullptr,
                                          [](void*, const char*, uint32_t, uint64_t,
                                             uint64_t) -> frt_status { return FRT_OK; }});
  }
  OtherHost(const OtherHost&) = delete;
  OtherHost& operator=(const OtherHost&) = delete;
  const frt_host* host() const { return &host_.known; }

 private:
  // A pointer read behind the end of a table is none.
  static constexpr int kPoison = 0x5A;
  static constexpr std::size_t kRoom = 256;  // bytes behind a table

  struct Longer {
    frt_host known;
    unsigned char more[64];
  };

  template <HasContract Table>
  void add(const char* id, const Table& known) {
    const std::size_t kept = age_ == Age::kOldest ? Contract<Table>::kBytes : sizeof(Table);
    const auto size = static_cast<uint32_t>(age_ == Age::kOldest ? kept : kept + kRoom / 2);
    std::vector<uint64_t>& block = tables_[id];
    block.resize((kept + kRoom + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    std::memset(block.data(), kPoison, block.size() * sizeof(uint64_t));
    std::memcpy(block.data(), &known, kept);
    std::memcpy(block.data(), &size, sizeof(size));
  }

  static const void* extension(void* self, const char* id) {
    const auto& tables = static_cast<OtherHost*>(self)->tables_;
    const auto found = tables.find(id ? id : "");
    return found == tables.end() ? nullptr : found->second.data();
  }

  Age age_;
  Longer host_{};
  std::map<std::string, std::vector<uint64_t>, std::less<>> tables_;
};

// A plugin that such a host opened.
class Opened {
 public:
  Opened(const Subject& subject, const OtherHost& host)
      : loaded_(load(subject)), sender_(plugin_sender(loaded_.card.id)) {
    const core::Config config = config_of(loaded_.schema.plugin_options, {}, "plugin");
    status_ = contain(sender_, "open", [&] {
      return loaded_.descriptor->open(host.host(), config.c(), &plugin_, &error_);
    });
  }
  ~Opened() {
    if (status_ == FRT_OK) loaded_.descriptor->close(plugin_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  // Throws Warn for a refusal that says why, where the host has less than this one; any other one
  // is an error.
  void require(bool may_refuse) const {
    if (status_ == FRT_OK) return;
    if (error_.message[0] == '\0') {
      fail(sender_ + ": `open` returns " + status_name(status_) +
           " without a message; say in frt_error what the host lacks");
    }
    if (may_refuse) throw Warn{std::string("`open` refuses: ") + error_.message};
    fail(sender_ +
         ": `open` refuses a newer host, which has all that this one has: " + error_.message);
  }
  template <HasContract Table>
  Table table(const char* id) const {
    const void* given =
        contain(sender_, "extension", [&] { return loaded_.descriptor->extension(plugin_, id); });
    return read_table<Table>(given, sender_);
  }
  const core::LoadedPlugin& loaded() const { return loaded_; }
  frt_plugin handle() const { return plugin_; }
  const std::string& sender() const { return sender_; }

 private:
  static const core::LoadedPlugin& load(const Subject& subject) {
    core::LoadRequest request;
    request.path = subject.plugin;
    return core::load_plugin(request);
  }

  const core::LoadedPlugin& loaded_;
  std::string sender_;
  frt_plugin plugin_ = nullptr;
  frt_error error_{};
  frt_status status_ = FRT_OK;
};

void use_backend(const Subject& subject, const Opened& opened) {
  const auto table = opened.table<frt_backend_v1>(FRT_EXT_BACKEND);
  const auto kernels = opened.table<frt_kernels_v1>(FRT_EXT_KERNELS);
  const core::Config config = config_of(opened.loaded().schema.options, subject.options, "device");
  core::ContextOptions options;
  options.name = "checked";
  options.backend_id = opened.loaded().card.id;
  options.kernels = &kernels;
  core::close_context(
      core::open_context(table, opened.handle(), subject.device, config.c(), options));
}

// The device of a model: of its backend, opened by the host of this program.
class Device {
 public:
  explicit Device(const Subject& subject) {
    core::LoadRequest request;
    request.path = subject.backend.empty() ? subject.reference : subject.backend;
    const core::LoadedPlugin& loaded = core::load_plugin(request);
    plugin_ = std::make_unique<core::OpenPlugin>(
        loaded, config_of(loaded.schema.plugin_options, {}, "plugin"), services_);
    const core::Config config = config_of(loaded.schema.options, {}, "device");
    core::ContextOptions options;
    options.name = "checked";
    options.backend_id = loaded.card.id;
    options.kernels = &plugin_->require<frt_kernels_v1>(FRT_EXT_KERNELS);
    context_ = core::open_context(plugin_->require<frt_backend_v1>(FRT_EXT_BACKEND),
                                  plugin_->handle(), 0, config.c(), options);
  }
  ~Device() {
    // Objects that a model left behind are told by the case that made the model.
    try {
      core::close_context(context_);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  frt_context context() const { return context_; }

 private:
  core::Log log_;
  core::HostServices services_{log_};
  std::unique_ptr<core::OpenPlugin> plugin_;
  frt_context context_ = nullptr;
};

void use_model(const Subject& subject, const Opened& opened, bool may_refuse) {
  const auto table = opened.table<frt_model_v1>(FRT_EXT_MODEL);
  if (subject.checkpoint.empty()) return;
  const Device device(subject);
  const core::Config config = config_of(opened.loaded().schema.options, subject.options, "model");
  const std::string checkpoint = checkpoint_of(subject);
  frt_model_params params{};
  params.struct_size = sizeof(params);
  params.context = device.context();
  params.name = "checked";
  params.checkpoint = checkpoint.c_str();
  params.config = config.c();
  frt_model model = nullptr;
  frt_error error{};
  subject.alive();
  const frt_status status = contain(opened.sender(), "create", [&] {
    return table.create(opened.handle(), &params, &model, &error);
  });
  if (status == FRT_ERR_UNSUPPORTED && may_refuse && error.message[0] != '\0') {
    throw Warn{std::string("`create` refuses: ") + error.message};
  }
  check(status, error, opened.sender() + ": create");
  contain(opened.sender(), "destroy", [&] { table.destroy(model); });
}

PluginCase case_of(const char* name, Age age, uint32_t kind) {
  return {name, [age, kind](const Subject& subject) {
            const OtherHost host(age);
            const Opened opened(subject, host);
            const bool may_refuse = age != Age::kNewer;
            opened.require(may_refuse);
            if (age == Age::kBare) return;
            if (kind == FRT_PLUGIN_BACKEND) {
              use_backend(subject, opened);
            } else {
              use_model(subject, opened, may_refuse);
            }
          }};
}

}  // namespace

void add_host_cases(std::vector<PluginCase>& cases, uint32_t kind) {
  cases.push_back(case_of("plugin host without extensions", Age::kBare, kind));
  cases.push_back(case_of("plugin host of the oldest version", Age::kOldest, kind));
  cases.push_back(case_of("plugin host of a later minor version", Age::kNewer, kind));
}

}  // namespace frt::conformance
