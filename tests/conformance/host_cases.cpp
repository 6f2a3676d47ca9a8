// SPDX-License-Identifier: Apache-2.0
// Hosts that are not the one of this program: one that has no extension; one that has nothing
// optional; one of the oldest version that works with this plugin (frt/version.hpp), whose tables
// end where that version's do; one of the next minor version, whose structs are longer. Each opens
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
#include <frt/role/contracts.hpp>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "broken_rule.hpp"
#include "check.hpp"
#include "enlarged.hpp"
#include "made_model.hpp"
#include "opened.hpp"
#include "plugin_cases.hpp"
#include "raw_model.hpp"

namespace frt::conformance {
namespace {

enum class Age { kBare, kPlain, kOldest, kNewer };

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
    std::memset(host_.more, kBehind, sizeof(host_.more));
    if (age == Age::kBare) return;
    add(FRT_EXT_EXEC, *core::exec_table());
    add(FRT_EXT_STATE, *core::state_table());
    add(FRT_EXT_CAPSULES, *core::capsules_table());
    if (age == Age::kPlain || age == Age::kOldest) return;
    add(FRT_EXT_LOG, frt_log_v1{sizeof(frt_log_v1), 0, nullptr,
                                [](void*, const char*, frt_log_level, const char*) {}});
    add(FRT_EXT_PROGRESS, frt_progress_v1{sizeof(frt_progress_v1), 0, nullptr,
                                          [](void*, const char*, uint32_t, uint64_t,
                                             uint64_t) -> frt_status { return FRT_OK; }});
  }
  OtherHost(const OtherHost&) = delete;
  OtherHost& operator=(const OtherHost&) = delete;
  const frt_host* host() const { return &host_.known; }
  // Whether a table of this host is shorter than this version's.
  bool has_shorter_tables() const { return has_shorter_tables_; }

 private:
  static constexpr std::size_t kRoom = 2 * std::size_t{kLonger};  // bytes behind a table

  struct Longer {
    frt_host known;
    unsigned char more[64];
  };

  template <HasContract Table>
  void add(const char* id, const Table& known) {
    const std::size_t kept = age_ == Age::kOldest ? Contract<Table>::kBytes : sizeof(Table);
    has_shorter_tables_ = has_shorter_tables_ || kept < sizeof(Table);
    const auto size = static_cast<uint32_t>(age_ == Age::kNewer ? kept + kLonger : kept);
    std::vector<uint64_t>& block = tables_[id];
    block.resize((kept + kRoom + sizeof(uint64_t) - 1) / sizeof(uint64_t));
    std::memset(block.data(), kBehind, block.size() * sizeof(uint64_t));
    std::memcpy(block.data(), &known, kept);
    std::memcpy(block.data(), &size, sizeof(size));
  }

  static const void* extension(void* self, const char* id) {
    const auto& tables = static_cast<OtherHost*>(self)->tables_;
    const auto found = tables.find(id ? id : "");
    return found == tables.end() ? nullptr : found->second.data();
  }

  Age age_;
  bool has_shorter_tables_ = false;
  Longer host_{};
  std::map<std::string, std::vector<uint64_t>, std::less<>> tables_;
};

// While the major number is 0 two minor versions are two ABIs (sdk/VERSIONING.md): a plugin may
// refuse the other one, as long as it says so.
bool is_refusal_of_a_version(frt_status status) {
  return FRT_ABI_MAJOR == 0 &&
         (status == FRT_ERR_ABI || status == FRT_ERR_UNSUPPORTED || status == FRT_ERR_MISMATCH);
}

// A plugin that such a host opened.
class Opened {
 public:
  Opened(const Subject& subject, const OtherHost& host, Age age)
      : age_(age), loaded_(loaded_plugin(subject.plugin)), sender_(plugin_sender(loaded_.card.id)) {
    const core::Config config = config_of(loaded_.schema.plugin_options, {}, "plugin");
    Enlarged<frt_config> longer(*config.c());
    status_ = contain(sender_, "open", [&] {
      return loaded_.descriptor->open(host.host(), is_newer() ? longer.get() : config.c(), &plugin_,
                                      &error_);
    });
    longer.require_untouched(sender_, "open");
  }
  ~Opened() {
    if (status_ == FRT_OK) loaded_.descriptor->close(plugin_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  bool is_newer() const { return age_ == Age::kNewer; }
  void require() const {
    // No model works without frt.exec/1, which says so in words: nothing is to be mended.
    const bool right = age_ == Age::kBare && loaded_.card.kind == FRT_PLUGIN_MODEL;
    if (!right || !has_words(error_)) require(status_, error_, "open");
  }
  // Throws Warn for a refusal that says why, where the host has less than this one or is of another
  // version; for any other one an error.
  void require(frt_status status, const frt_error& error, const char* function) const {
    if (status == FRT_OK) return;
    const std::string what = sender_ + ": `" + function + "` ";
    if (!has_words(error)) {
      fail_abi(what + "returns " + status_name(status) +
               " without a message; say in frt_error what the host lacks");
    }
    if (!is_newer() || is_refusal_of_a_version(status)) {
      throw Warn{what + "refuses: " + error.message};
    }
    fail_abi(what + "refuses a newer host, which has all that this one has, with " +
             status_name(status) + ": " + error.message);
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
  Age age_;
  const core::LoadedPlugin& loaded_;
  std::string sender_;
  frt_plugin plugin_ = nullptr;
  frt_error error_{};
  frt_status status_ = FRT_OK;
};

// Asks for a struct that the caller sizes, as a newer host does and as one that lacks the last
// member, at `last`: the plugin writes what both know. It may refuse the older host.
template <HasContract Struct, class Call>
Struct ask_sized(const Opened& opened, const char* function, std::size_t last, const Call& call) {
  Shortened<Struct> shorter(last);
  const frt_status status = contain(opened.sender(), function, [&] { return call(shorter.get()); });
  shorter.require_filled(opened.sender(), function);
  if (status != FRT_ERR_ABI && !is_refusal_of_a_version(status)) {
    check(status, opened.sender() + ": `" + function + "` of a struct of an earlier version");
  }
  Enlarged<Struct> longer;
  check(contain(opened.sender(), function, [&] { return call(longer.get()); }),
        opened.sender() + ": `" + function + "` of a struct of a later version");
  longer.require_filled(opened.sender(), function);
  return read_table<Struct>(longer.get(), opened.sender());
}

void use_backend(const Subject& subject, const Opened& opened) {
  const auto table = opened.table<frt_backend_v1>(FRT_EXT_BACKEND);
  const auto kernels = opened.table<frt_kernels_v1>(FRT_EXT_KERNELS);
  const core::Config config = config_of(opened.loaded().schema.options, subject.options, "device");
  core::ContextOptions options;
  options.name = "checked";
  options.backend_id = opened.loaded().card.id;
  options.kernels = &kernels;
  if (!opened.is_newer()) {
    core::close_context(
        core::open_context(table, opened.handle(), subject.device, config.c(), options));
    return;
  }
  frt_error error{};
  ask_sized<frt_device_info>(
      opened, "device_info", FRT_LAST_MEMBER(frt_device_info, numerics), [&](frt_device_info* out) {
        return table.device_info(opened.handle(), subject.device, out, &error);
      });
  Enlarged<frt_config> longer(*config.c());
  core::close_context(
      core::open_context(table, opened.handle(), subject.device, longer.get(), options));
  longer.require_untouched(opened.sender(), "device_open");
}

// What a newer host gives and asks of a model's extensions.
void use_extensions(const Opened& opened, const frt_model_v1& table, frt_model model) {
  const std::string& sender = opened.sender();
  ask_sized<frt_model_info>(opened, "info", FRT_LAST_MEMBER(frt_model_info, scratch_bytes),
                            [&](frt_model_info* out) { return table.info(model, out); });
  if (const auto role = find_extension<frt_role_lm_v1>(table, model, FRT_EXT_ROLE_LM, sender)) {
    ask_sized<frt_lm_info>(opened, "info of " FRT_EXT_ROLE_LM,
                           FRT_LAST_MEMBER(frt_lm_info, bias_capacity),
                           [&](frt_lm_info* out) { return role->info(model, out); });
  }
  if (const auto role =
          find_extension<frt_role_policy_v1>(table, model, FRT_EXT_ROLE_POLICY, sender)) {
    ask_sized<frt_policy_info>(opened, "info of " FRT_EXT_ROLE_POLICY,
                               FRT_LAST_MEMBER(frt_policy_info, prefix),
                               [&](frt_policy_info* out) { return role->info(model, out); });
    Enlarged<frt_policy_shape> shape;
    frt_shape_key key = 0;
    check(contain(sender, "infer_key", [&] { return role->infer_key(model, shape.get(), &key); }),
          sender + ": `infer_key` of a shape of a later version");
    shape.require_untouched(sender, "infer_key");
  }
  if (const auto role =
          find_extension<frt_role_critic_v1>(table, model, FRT_EXT_ROLE_CRITIC, sender)) {
    ask_sized<frt_critic_info>(opened, "info of " FRT_EXT_ROLE_CRITIC,
                               FRT_LAST_MEMBER(frt_critic_info, value),
                               [&](frt_critic_info* out) { return role->info(model, out); });
  }
  if (const auto robot =
          find_extension<frt_observation_v1>(table, model, FRT_EXT_OBSERVATION, sender)) {
    ask_sized<frt_observation_info>(
        opened, "info of " FRT_EXT_OBSERVATION, FRT_LAST_MEMBER(frt_observation_info, metadata),
        [&](frt_observation_info* out) { return robot->info(model, out); });
  }
  if (const auto text = find_extension<frt_tokenizer_v1>(table, model, FRT_EXT_TOKENIZER, sender)) {
    Enlarged<frt_encode_params> params;
    frt_error error{};
    const auto nothing = [](void*, const void*, uint64_t) -> frt_status { return FRT_OK; };
    const frt_status status = contain(sender, "encode", [&] {
      return text->encode(model, "a", 1, params.get(), nothing, nullptr, &error);
    });
    check(status, error, sender + ": `encode` with parameters of a later version");
    params.require_untouched(sender, "encode");
  }
}

void use_model(const Subject& subject, const Opened& opened) {
  const auto table = opened.table<frt_model_v1>(FRT_EXT_MODEL);
  if (subject.checkpoint.empty()) return;
  const ModelDevice device(subject);
  const core::Config config = config_of(opened.loaded().schema.options, subject.options, "model");
  const std::string checkpoint = checkpoint_of(subject);
  Enlarged<frt_config> longer_config(*config.c());
  frt_model_params known{};
  known.struct_size = sizeof(known);
  known.context = device.context();
  known.name = "checked";
  known.checkpoint = checkpoint.c_str();
  known.config = opened.is_newer() ? longer_config.get() : config.c();
  Enlarged<frt_model_params> longer(known);
  frt_model model = nullptr;
  frt_error error{};
  subject.alive();
  const frt_status status = contain(opened.sender(), "create", [&] {
    return table.create(opened.handle(), opened.is_newer() ? longer.get() : &known, &model, &error);
  });
  longer.require_untouched(opened.sender(), "create");
  longer_config.require_untouched(opened.sender(), "create");
  if (status == FRT_ERR_UNSUPPORTED || is_refusal_of_a_version(status)) {
    opened.require(status, error, "create");
  }
  check(status, error, opened.sender() + ": create");
  try {
    if (opened.is_newer()) use_extensions(opened, table, model);
  } catch (...) {
    table.destroy(model);
    throw;
  }
  contain(opened.sender(), "destroy", [&] { table.destroy(model); });
}

// A few steps, with structs of the host's version.
void use_environment(const Subject& subject, const Opened& opened) {
  const auto table = opened.table<frt_environment_v1>(FRT_EXT_ENVIRONMENT);
  const std::string& sender = opened.sender();
  const core::Config config =
      config_of(opened.loaded().schema.options, subject.options, "environment");
  Enlarged<frt_config> longer_config(*config.c());
  frt_environment_params known{};
  known.struct_size = sizeof(known);
  known.name = "checked";
  known.config = opened.is_newer() ? longer_config.get() : config.c();
  Enlarged<frt_environment_params> longer(known);
  frt_environment environment = nullptr;
  frt_error error{};
  const frt_status status = contain(sender, "create", [&] {
    return table.create(opened.handle(), opened.is_newer() ? longer.get() : &known, &environment,
                        &error);
  });
  longer.require_untouched(sender, "create");
  longer_config.require_untouched(sender, "create");
  if (status == FRT_ERR_UNSUPPORTED || is_refusal_of_a_version(status)) {
    opened.require(status, error, "create");
  }
  check(status, error, sender + ": create");
  try {
    const auto info = ask_sized<frt_environment_info>(
        opened, "info", offsetof(frt_environment_info, action_high),
        [&](frt_environment_info* out) { return table.info(environment, out); });
    frt_environment_start start{};
    start.struct_size = sizeof(start);
    start.task = FRT_TASK_ANY;
    start.seed = subject.seed;
    Enlarged<frt_environment_start> longer_start(start);
    check(contain(sender, "reset",
                  [&] { return table.reset(environment, longer_start.get(), &error); }),
          error, sender + ": `reset` with a start of a later version");
    longer_start.require_untouched(sender, "reset");
    ask_sized<frt_observation>(
        opened, "observe", offsetof(frt_observation, options),
        [&](frt_observation* out) { return table.observe(environment, out, &error); });
    const std::vector<double> action(static_cast<std::size_t>(info.action->shape[0]));
    ask_sized<frt_environment_result>(opened, "step", offsetof(frt_environment_result, reward),
                                      [&](frt_environment_result* out) {
                                        return table.step(environment, action.data(), out, &error);
                                      });
  } catch (...) {
    table.destroy(environment);
    throw;
  }
  contain(sender, "destroy", [&] { table.destroy(environment); });
}

PluginCase case_of(const char* name, Age age, uint32_t kind) {
  return {name, [age, kind](const Subject& subject) {
            const OtherHost host(age);
            if (age == Age::kOldest && !host.has_shorter_tables()) {
              throw Skip{"no table of a host has grown since version " + oldest_abi() +
                         ", the oldest that works with this one"};
            }
            const Opened opened(subject, host, age);
            opened.require();
            if (age == Age::kBare) return;
            if (kind == FRT_PLUGIN_BACKEND) {
              use_backend(subject, opened);
            } else if (kind == FRT_PLUGIN_ENVIRONMENT) {
              use_environment(subject, opened);
            } else {
              use_model(subject, opened);
            }
          }};
}

}  // namespace

void add_host_cases(std::vector<PluginCase>& cases, uint32_t kind) {
  cases.push_back(case_of("plugin host without extensions", Age::kBare, kind));
  cases.push_back(case_of("plugin host without optional extensions", Age::kPlain, kind));
  cases.push_back(case_of("plugin host of the oldest version", Age::kOldest, kind));
  cases.push_back(case_of("plugin host of a later minor version", Age::kNewer, kind));
}

}  // namespace frt::conformance
