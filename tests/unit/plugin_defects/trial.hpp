// SPDX-License-Identifier: Apache-2.0
// trial.hpp - fresh copies of the plugins with defects, one of them with a defect, and what becomes
// of loading and using them.
//
// A file is loaded once, so each trial has copies of its own: their bytes may be changed before,
// and the environment tells them their defect (defects.hpp).
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <frt/plugin.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/state.hpp>
#include <frt/io/file.hpp>
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lm/chat/stream.hpp"
#include "lm/lm_model.hpp"
#include "robot/policy_model.hpp"
#include "runtime/device_survey.hpp"
#include "runtime/plugin_reports.hpp"

#if FRT_BUILD_SANITIZER == FRT_SANITIZER_ADDRESS
#include <sanitizer/lsan_interface.h>
#endif

namespace broken {

using namespace frt;
namespace fs = std::filesystem;

// One change of a plugin's file: as many bytes as before.
struct Patch {
  std::string from, to;
};

// What the cards say beside what a row changes (defects.hpp).
inline const std::string kSummary = "summary = \"------------------------\"";
inline std::string card_abi(uint32_t major, uint32_t minor) {
  return "abi = \"" + std::to_string(major) + "." + std::to_string(minor) + "\"";
}
inline const std::string kCardAbi = card_abi(FRT_ABI_MAJOR, FRT_ABI_MINOR);
inline const std::string kHostAbi =
    std::to_string(FRT_ABI_MAJOR) + "." + std::to_string(FRT_ABI_MINOR);

// Replaces lines of a card that end in its summary; blanks make up for what is shorter.
inline Patch patch_card(std::string from, std::string to) {
  if (to.size() < from.size()) to.resize(from.size(), ' ');
  return {std::move(from), std::move(to)};
}
// A card of another version of the ABI.
inline Patch patch_abi(uint32_t major, uint32_t minor) {
  return patch_card(kCardAbi + "\n" + kSummary, card_abi(major, minor) + "\nsummary = \"-\"");
}

struct Row {
  const char* plugin;  // "device", "model" or "roles": whose defect it is
  const char* defect;
  frt_status status;
  std::vector<std::string> parts;  // of the error, beside the plugin's id
  std::optional<Patch> patch{};
};

// A manifest of one device and one model.
inline std::string manifest_of(const std::string& backend, const std::string& model) {
  return "schema = 1\n[device.d]\nbackend = \"" + backend + "\"\n[model.m]\nplugin = \"" + model +
         "\"\ndevice = \"d\"\ncheckpoint = \"synthetic:x\"\n";
}

// What a plugin leaves behind on purpose is no finding of the leak checker.
class MayLeak {
 public:
#if FRT_BUILD_SANITIZER == FRT_SANITIZER_ADDRESS
  MayLeak() {
    __lsan_disable();
  }
  ~MayLeak() {
    __lsan_enable();
  }
#else
  MayLeak() {}
  ~MayLeak() {}
#endif
  MayLeak(const MayLeak&) = delete;
  MayLeak& operator=(const MayLeak&) = delete;
};

// What is done with the model.
using Use = std::function<void(const Context& context, const core::Runtime& runtime,
                               const core::RuntimeModel& model)>;

// A folder with a copy of each plugin, and what became of loading and using them.
class Trial {
 public:
  explicit Trial(const std::string& plugin = {}, const std::string& defect = {},
                 const std::optional<Patch>& patch = {}) {
    std::string name = (fs::temp_directory_path() / "frt-defects-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    for (const std::string kind : {"device", "model", "roles"}) {
      const std::string file = "defect_" + (kind == "device" ? "backend" : kind) + ".so";
      std::string bytes = io::read_file(fs::path(FRT_TEST_PLUGINS) / file, "plugin", 1u << 28);
      if (patch && plugin == kind) replace_all(bytes, *patch);
      io::write_file_atomically(folder_ / file, bytes);
    }
    plugin_ = plugin;
    defect_ = defect;
  }
  ~Trial() {
    ::unsetenv("FRT_TEST_DEFECT");
    fs::remove_all(folder_);
  }

  const fs::path& folder() const { return folder_; }
  fs::path log_path() const { return folder_ / "log"; }
  std::string log() const { return io::read_file(log_path(), "log", 1u << 20); }
  std::chrono::milliseconds patience{std::chrono::minutes(10)};
  core::Probing probing = core::Probing::kNever;
  std::chrono::milliseconds trial_limit{std::chrono::minutes(10)};
  std::string manifest = manifest_of("test.device", "test.model");
  uint32_t flags = 0;    // FRT_MODEL_*
  Use use;               // instead of a language model's
  std::string rejected;  // the reasons of files that were not taken, a line each

  // What the plugins' devices are.
  host::Survey survey() {
    core::RegistryOptions options;
    options.plugin_folders = {folder_};
    options.use_environment = false;
    options.own_folder = "/nowhere";
    options.probing = probing;
    core::LogOptions silent;
    silent.descriptor = -1;
    core::Log log(silent);
    core::Registry found(options);
    load(found, "test." + plugin_, defect_);
    return host::survey_devices(found, log);
  }

  // From the search to the fingerprint of the model's capsules; throws what goes wrong.
  void run() {
    core::RegistryOptions options;
    options.plugin_folders = {folder_};
    options.use_environment = false;
    options.own_folder = "/nowhere";
    options.probing = probing;
    options.trial_limit = trial_limit;
    options.trials.clear();
    core::LogOptions log_options;
    const int lines = ::open(log_path().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    const io::Descriptor log_file(lines);
    log_options.descriptor = log_file.get();
    core::Log log(log_options);
    options.log = &log;
    options.patience = patience;
    core::Registry found(options);
    for (const core::Candidate& candidate : found.candidates()) {
      if (candidate.state != core::CandidateState::kUsable) rejected += candidate.reason + "\n";
    }
    // Each defect for its own plugin: the others are loaded before.
    for (const std::string kind : {"device", "model", "roles"}) {
      if (plugin_ != kind) load(found, "test." + kind, "");
    }
    if (!plugin_.empty()) load(found, "test." + plugin_, defect_);
    core::HostServices services(log);
    services.setup_patience = patience;
    core::ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &found;
    core::Runtime runtime(core::parse_manifest(manifest, "/m.toml", request), found, services);
    const core::RuntimeModel model = runtime.create_model("m", flags);
    try {
      const Context context(core::exec_table(), runtime.device("d").context);
      if (use) {
        use(context, runtime, model);
      } else {
        use_language_model(context, model);
        use_reports(model, *runtime.device("d").plugin);
        use_robot(context, model);
      }
    } catch (...) {
      runtime.destroy_model(model);
      throw;
    }
    runtime.destroy_model(model);
  }

 private:
  void use_language_model(const Context& context, const core::RuntimeModel& model) const {
    const host::LmModel lm(context, core::state_table(), core::capsules_table(), model.table,
                           model.handle, "m", model.plugin->loaded().card.id);
    (void)lm.capsules().fingerprint();
    (void)lm.prefill_key(1);
    use_text(lm);
    use_numbers(lm);
  }
  // The call that the defect names.
  void use_text(const host::LmModel& lm) const {
    if (defect_ == "fails_encode") (void)lm.encode("a");
    if (defect_ == "fails_decode") (void)lm.decode(std::vector<int32_t>{1});
    if (defect_ == "fails_stream") host::TextStream(lm, 0);
    if (defect_ == "fails_render") (void)lm.render({}, nullptr, nullptr);
    if (defect_ == "fails_parse") (void)lm.parse("a", nullptr, nullptr);
    if (defect_ == "fails_defaults") (void)lm.generation_defaults();
    if (defect_ == "fails_long_prompt") (void)lm.encode("a");
    if (defect_.starts_with("stream_")) {
      host::ChatStream stream(lm, nullptr, nullptr);
      stream.push("a");
      stream.finish();
    }
  }
  static void use_numbers(const host::LmModel& lm) {
    uint32_t entries = 0;
    (void)lm.decode_key(1, entries);
    CHECK(entries == 1);
    const auto layout = lm.capsule_layout();
    REQUIRE(layout.has_value());
    CHECK(layout->region_count == 1);
  }
  static void use_reports(const core::RuntimeModel& model, const core::OpenPlugin& device) {
    const std::string sender = model_sender("m", model.plugin->loaded().card.id);
    const auto selftest =
        find_extension<frt_selftest_v1>(*model.table, model.handle, FRT_EXT_SELFTEST, sender);
    const auto rows = host::run_selftest(*selftest, model.handle, "/goldens", sender);
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].tensor == "logits");
    const auto& status = device.require<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
    const auto facts = host::device_facts(status, device.handle(), 0, device.sender());
    REQUIRE(facts.size() == 1);
    CHECK(facts[0].fact == "9.1");
  }
  static void use_robot(const Context& context, const core::RuntimeModel& model) {
    const std::string id = model.plugin->loaded().card.id;
    const host::PolicyModel policy(context, model.table, model.handle, "m", id);
    CHECK(policy.robot_values() == 40);
    const host::CriticModel critic(context, model.table, model.handle, "m", id);
    CHECK(critic.info().views == 1);
  }
  static void replace_all(std::string& bytes, const Patch& patch) {
    REQUIRE(patch.from.size() == patch.to.size());
    std::size_t at = bytes.find(patch.from);
    REQUIRE(at != std::string::npos);
    for (; at != std::string::npos; at = bytes.find(patch.from, at)) {
      bytes.replace(at, patch.from.size(), patch.to);
    }
  }
  static void load(core::Registry& registry, const std::string& id, const std::string& defect) {
    ::setenv("FRT_TEST_DEFECT", defect.c_str(), 1);
    registry.load(id);
  }

  fs::path folder_;
  std::string plugin_, defect_;
};

// Each row is refused with its status and its parts, and by the plugin's id. `prepare` may change
// the trial before it runs.
inline void refuses(const std::vector<Row>& rows,
                    const std::function<void(Trial& trial)>& prepare = {}) {
  for (const Row& row : rows) {
    CAPTURE(row.defect);
    Trial trial(row.plugin, row.defect, row.patch);
    if (prepare) prepare(trial);
    frt_status status = FRT_OK;
    std::string text = "(accepted)";
    try {
      trial.run();
    } catch (const Error& error) {
      status = error.status();
      text = error.what();
    }
    CAPTURE(text);
    CHECK(status == row.status);
    CHECK(text.find(std::string("test.") + row.plugin) != std::string::npos);
    for (const std::string& part : row.parts) {
      CAPTURE(part);
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

}  // namespace broken
