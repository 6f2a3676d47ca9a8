// SPDX-License-Identifier: Apache-2.0
// Broken plugins: each row is one defect of a plugin that is right otherwise, and what the host
// says of it. None crashes the host, none is accepted without a word, and every error names the
// plugin.
//
// A row loads fresh copies of the two plugins, because a file is loaded once: their bytes may be
// changed before, and the environment tells them their defect (faulty.hpp).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/state.hpp>
#include <frt/io/file.hpp>
#include <frt/io/utf8.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lm/lm_model.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

using namespace frt;
namespace fs = std::filesystem;

namespace {

// One change of a plugin's file: as many bytes as before.
struct Patch {
  std::string from, to;
};

struct Row {
  const char* plugin;  // "device" or "model": whose defect it is
  const char* defect;
  frt_status status;
  std::vector<std::string> parts;  // of the error, beside the plugin's id
  std::optional<Patch> patch{};
};

constexpr const char* kManifest = R"(
schema = 1
[device.d]
backend = "test.device"
[model.m]
plugin = "test.model"
device = "d"
checkpoint = "synthetic:x"
)";

// What a plugin leaves behind on purpose is no finding of the leak checker.
class MayLeak {
 public:
#if defined(__SANITIZE_ADDRESS__)
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

// A folder with a copy of each plugin, and what became of loading and using them.
class Trial {
 public:
  explicit Trial(const std::string& plugin = {}, const std::string& defect = {},
                 const std::optional<Patch>& patch = {}) {
    std::string name = (fs::temp_directory_path() / "frt-broken-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    for (const char* kind : {"backend", "model"}) {
      const std::string file = std::string("faulty_") + kind + ".so";
      std::string bytes = io::read_file(fs::path(FRT_TEST_PLUGINS) / file, "plugin", 1u << 28);
      const bool broken = (plugin == "model") == (std::string(kind) == "model");
      if (patch && broken) replace_all(bytes, *patch);
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

  // From the search to the fingerprint of the model's capsules; throws what goes wrong.
  void run() {
    core::RegistryOptions options;
    options.plugin_folders = {folder_};
    options.use_environment = false;
    options.own_folder = "/nowhere";
    options.probing = core::Probing::kNever;
    core::Registry found(options);
    // Each defect for its own plugin: the other is loaded before.
    load(found, plugin_ == "model" ? "test.device" : "test.model", "");
    load(found, plugin_ == "model" ? "test.model" : "test.device", defect_);
    core::LogOptions log_options;
    const int lines = ::open(log_path().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    const io::Descriptor log_file(lines);
    log_options.descriptor = log_file.get();
    core::Log log(log_options);
    core::HostServices services(log);
    services.setup_patience = patience;
    core::ManifestRequest request;
    request.environment = [](const std::string&) { return std::nullopt; };
    request.schemas = &found;
    core::Runtime runtime(core::parse_manifest(kManifest, "/m.toml", request), found, services);
    const core::RuntimeModel model = runtime.create_model("m");
    try {
      const Context context(core::exec_table(), runtime.device("d").context);
      const host::LmModel lm(context, core::state_table(), core::capsules_table(), model.table,
                             model.handle, "m", model.plugin->loaded().card.id);
      (void)lm.capsules().fingerprint();
      (void)lm.prefill_key(1);
      use_text(lm);
    } catch (...) {
      runtime.destroy_model(model);
      throw;
    }
    runtime.destroy_model(model);
  }

 private:
  // The call that the defect names.
  void use_text(const host::LmModel& lm) const {
    if (defect_ == "fails_encode") (void)lm.encode("a");
    if (defect_ == "fails_decode") (void)lm.decode(std::vector<int32_t>{1});
    if (defect_ == "fails_stream") host::TextStream(lm, 0);
    if (defect_ == "fails_render") (void)lm.render({}, nullptr, nullptr);
    if (defect_ == "fails_parse") (void)lm.parse("a", nullptr, nullptr);
    if (defect_ == "fails_defaults") (void)lm.generation_defaults();
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

void refuses(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    CAPTURE(row.defect);
    Trial trial(row.plugin, row.defect, row.patch);
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

}  // namespace

TEST_CASE("the plugins without a defect work from the search to the fingerprint") {
  Trial trial;
  CHECK_NOTHROW(trial.run());
}

TEST_CASE("a broken card or file is refused with its reason where the plugin is asked for") {
  refuses({
      {"model",
       "card of ABI 2.0",
       FRT_ERR_ABI,
       {"built for ABI 2.0, but this host speaks 0.9"},
       Patch{"abi = \"0.9\"", "abi = \"2.0\""}},
      {"model",
       "card of another 0.x",
       FRT_ERR_ABI,
       {"built for ABI 0.8, but this host speaks 0.9"},
       Patch{"abi = \"0.9\"", "abi = \"0.8\""}},
      {"model",
       "no card",
       FRT_ERR_NOT_FOUND,
       {"no plugin 'test.model'", "faulty_model.so: no plugin, it has no section .frt.card"},
       Patch{".frt.card", ".frt.cord"}},
      {"model",
       "unknown key",
       FRT_ERR_FORMAT,
       {"unknown key `summery`"},
       Patch{"summary = ", "summery = "}},
      {"model",
       "undefined symbol",
       FRT_ERR_FORMAT,
       {"the dynamic linker", "getenw"},
       Patch{"getenv", "getenw"}},
  });
}

TEST_CASE("a broken descriptor or schema is refused before open is called") {
  refuses({
      {"model", "descriptor_size_3", FRT_ERR_ABI, {"descriptor", "says that it has 3 bytes"}},
      {"model", "descriptor_size_huge", FRT_ERR_ABI, {"descriptor", "4294967295 bytes"}},
      {"model", "descriptor_abi", FRT_ERR_ABI, {"its descriptor speaks ABI 2.9"}},
      {"model", "descriptor_no_open", FRT_ERR_ABI, {"descriptor", "has no open"}},
      {"model", "descriptor_no_id", FRT_ERR_ABI, {"descriptor", "has no id"}},
      {"model", "descriptor_no_build", FRT_ERR_ABI, {"descriptor", "has no build"}},
      {"model",
       "descriptor_garbage_version",
       FRT_ERR_FORMAT,
       {"version is no text: byte 0xff at offset 0"}},
      {"model", "descriptor_other_id", FRT_ERR_ABI, {"disagree on the id"}},
      {"model", "descriptor_other_kind", FRT_ERR_ABI, {"disagree on the kind"}},
      {"model", "schema_size_3", FRT_ERR_ABI, {"frt.config-schema/1 says that it has 3 bytes"}},
      {"model", "schema_size_huge", FRT_ERR_ABI, {"frt.config-schema/1", "4294967295 bytes"}},
      {"model", "schema_null_list", FRT_ERR_FORMAT, {"the list is null"}},
      {"model", "schema_count", FRT_ERR_FORMAT, {"18446744073709551615 options"}},
      {"model",
       "schema_garbage",
       FRT_ERR_FORMAT,
       {"is no text: byte 0xff at offset 0 is no UTF-8"}},
  });
}

TEST_CASE("a plugin whose open throws, lies or fails is named") {
  refuses({
      {"model", "open_throws", FRT_ERR_INTERNAL, {"`open` threw", "no key in the lock"}},
      {"model", "open_without_object", FRT_ERR_INTERNAL, {"open reported success but made no"}},
      {"model", "open_status", FRT_ERR_INTERNAL, {"status 12345, which ABI 0.9 does not define"}},
      {"model", "open_endless_text", FRT_ERR_DEVICE, {"xxxx"}},
      {"model", "extension_throws", FRT_ERR_INTERNAL, {"`extension` threw", "ask again later"}},
  });
}

TEST_CASE("a broken model table or a create that throws or lies is named") {
  refuses({
      {"model", "model_missing", FRT_ERR_UNSUPPORTED, {"offers no frt.model/1"}},
      {"model", "model_size_3", FRT_ERR_ABI, {"frt.model/1 says that it has 3 bytes"}},
      {"model", "model_size_deadbeef", FRT_ERR_ABI, {"frt.model/1", "3735928559 bytes"}},
      {"model", "model_no_create", FRT_ERR_ABI, {"frt.model/1 has no create"}},
      {"model", "create_throws", FRT_ERR_INTERNAL, {"`create` threw", "out of paper"}},
      {"model", "create_without_object", FRT_ERR_INTERNAL, {"create reported success but made no"}},
      {"model", "create_status", FRT_ERR_INTERNAL, {"half done", "status 12345"}},
      {"model", "model_extension_throws", FRT_ERR_INTERNAL, {"`extension` threw"}},
      {"model", "info_null_text", FRT_ERR_FORMAT, {"formats in its frt_model_info is NULL"}},
      {"model", "info_garbage", FRT_ERR_FORMAT, {"architecture", "is no text"}},
      {"model", "info_status", FRT_ERR_INTERNAL, {"frt_model_info", "status 12345"}},
  });
}

TEST_CASE("a broken extension or role of a model is refused before its first use") {
  refuses({
      {"model", "role_three_bytes", FRT_ERR_ABI, {"frt.role.lm/1 says"}},
      {"model", "role_size_3", FRT_ERR_ABI, {"frt.role.lm/1 says that it has 3 bytes"}},
      {"model", "role_size_deadbeef", FRT_ERR_ABI, {"frt.role.lm/1", "3735928559 bytes"}},
      {"model", "role_no_info", FRT_ERR_ABI, {"frt.role.lm/1 has no info"}},
      {"model", "role_no_prefill_key", FRT_ERR_ABI, {"frt.role.lm/1 has no prefill_key"}},
      {"model", "lm_info_status", FRT_ERR_INTERNAL, {"frt_lm_info", "status 12345"}},
      {"model", "lm_info_throws", FRT_ERR_INTERNAL, {"frt_lm_info", "no numbers today"}},
      {"model", "lm_info_size_3", FRT_ERR_ABI, {"frt_lm_info says that it has 3 bytes"}},
      {"model", "lm_info_zero", FRT_ERR_ABI, {"frt_lm_info has no state"}},
      {"model", "lm_info_no_tokens", FRT_ERR_ABI, {"frt_lm_info has no tokens"}},
      {"model", "lm_info_vocabulary", FRT_ERR_MISMATCH, {"vocabulary = 0; it must be 1"}},
      {"model", "lm_info_numbers", FRT_ERR_MISMATCH, {"vocabulary = 4294967295"}},
      {"model", "lm_info_batch", FRT_ERR_MISMATCH, {"its buffer tokens has 4096 bytes"}},
      {"model", "lm_info_mask", FRT_ERR_MISMATCH, {"mask_words = 18446744073709551615"}},
      {"model", "lm_info_drafts", FRT_ERR_MISMATCH, {"max_drafts = 3", "need has_draft"}},
      {"model", "lm_info_slots", FRT_ERR_MISMATCH, {"slots = 1000, its arena has 2"}},
      {"model", "tokenizer_size_3", FRT_ERR_ABI, {"frt.tokenizer/1 says that it has 3 bytes"}},
      {"model", "tokenizer_empty", FRT_ERR_ABI, {"frt.tokenizer/1 has no vocabulary"}},
      {"model", "chat_empty", FRT_ERR_ABI, {"frt.chat/1 has no render"}},
      {"model", "capsule_size_3", FRT_ERR_ABI, {"frt.capsule/1 says that it has 3 bytes"}},
      {"model", "capsule_no_layout", FRT_ERR_ABI, {"frt.capsule/1 has no layout"}},
      {"model", "capsule_no_state", FRT_ERR_ABI, {"frt.capsule/1 gives a NULL state"}},
      {"model", "fingerprint_no_value", FRT_ERR_FORMAT, {"a text of its fingerprint is NULL"}},
      {"model", "fingerprint_garbage", FRT_ERR_FORMAT, {"fingerprint is no text"}},
  });
}

TEST_CASE("what a call of a role, a tokenizer or a chat format reports carries the plugin's id") {
  refuses({
      {"model", "prefill_key_fails", FRT_ERR_NO_VARIANT, {"prefill of 1 tokens"}},
      {"model", "fails_encode", FRT_ERR_FORMAT, {"no such letter"}},
      {"model", "fails_decode", FRT_ERR_FORMAT, {"no such id"}},
      {"model", "fails_stream", FRT_ERR_FORMAT, {"no more streams"}},
      {"model", "fails_render", FRT_ERR_FORMAT, {"no such role"}},
      {"model", "fails_parse", FRT_ERR_FORMAT, {"no such mark"}},
      {"model", "fails_defaults", FRT_ERR_FORMAT, {"no such file"}},
  });
}

TEST_CASE("a broken backend, device or kernel list is refused by what is wrong") {
  refuses({
      {"device", "backend_missing", FRT_ERR_UNSUPPORTED, {"offers no frt.backend/1"}},
      {"device", "backend_size_3", FRT_ERR_ABI, {"frt.backend/1 says that it has 3 bytes"}},
      {"device", "backend_size_deadbeef", FRT_ERR_ABI, {"frt.backend/1", "3735928559 bytes"}},
      {"device", "backend_no_copy", FRT_ERR_ABI, {"frt.backend/1 has no copy"}},
      {"device", "backend_no_kind", FRT_ERR_ABI, {"frt.backend/1 has no native_kind"}},
      {"device", "backend_garbage_kind", FRT_ERR_FORMAT, {"native_kind is no text"}},
      {"device", "device_count_throws", FRT_ERR_INTERNAL, {"`device_count` threw"}},
      {"device", "device_info_status", FRT_ERR_INTERNAL, {"status 12345"}},
      {"device", "device_info_size_3", FRT_ERR_ABI, {"frt_device_info says that it has 3 bytes"}},
      {"device", "device_info_garbage", FRT_ERR_FORMAT, {"name of device 0 is no text"}},
      {"device", "device_info_endless", FRT_ERR_FORMAT, {"detail of device 0 does not end"}},
      {"device", "device_open_throws", FRT_ERR_INTERNAL, {"`device_open` threw", "no such luck"}},
      {"device", "device_open_without_object", FRT_ERR_INTERNAL, {"success but made no device"}},
      {"device", "kernels_size_3", FRT_ERR_ABI, {"frt.kernels/1 says that it has 3 bytes"}},
      {"device", "kernels_no_list", FRT_ERR_ABI, {"frt.kernels/1 has no list"}},
      {"device", "kernels_stride", FRT_ERR_ABI, {"stride of 0 bytes"}},
      {"device", "kernels_count", FRT_ERR_ABI, {"list of kernels has 18446744073709551615"}},
      {"device", "kernels_null", FRT_ERR_ABI, {"list of kernels is NULL"}},
      {"device", "kernels_status", FRT_ERR_INTERNAL, {"status 12345"}},
      {"device", "kernel_size_huge", FRT_ERR_ABI, {"kernel descriptor says", "4294967295 bytes"}},
      {"device", "kernel_no_launch", FRT_ERR_INVALID_ARGUMENT, {"has no launch function"}},
      {"device", "kernel_no_name", FRT_ERR_INVALID_ARGUMENT, {"has no name"}},
      {"device", "kernel_garbage_name", FRT_ERR_FORMAT, {"name of a kernel is no text"}},
  });
}

TEST_CASE("what destroy throws is in the log, by its plugin and call") {
  const MayLeak may_leak;
  Trial trial("model", "destroy_throws");
  // The model that is not destroyed leaves its buffers behind; that may be told, too.
  try {
    trial.run();
  } catch (const Error&) {
  }
  CHECK(trial.log().find("test.model: its `destroy` threw across the ABI: the door is stuck") !=
        std::string::npos);
}

TEST_CASE("a plugin that leaves objects behind does not crash the host, which counts them") {
  const MayLeak may_leak;
  Trial trial("model", "leaks");
  CHECK_NOTHROW(trial.run());
  CHECK(trial.log().find("still has 1 buffer(s)") != std::string::npos);
}

TEST_CASE(
    "an error of 3,000 bytes is in the log whole, once, by its plugin, and its record says so") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u4e2d";
  for (const std::string defect : {"open_long_text", "create_long_text"}) {
    CAPTURE(defect);
    Trial trial("model", defect);
    std::string seen;
    try {
      trial.run();
    } catch (const Error& error) {
      seen = error.what();
    }
    CAPTURE(seen);
    CHECK(seen.find("\u4e2d... (3000 bytes; the log has all of it)") != std::string::npos);
    CHECK(io::is_utf8(seen));
    const std::string log = trial.log();
    CAPTURE(log);
    const std::size_t first = log.find("error test.model: " + text + "\n");
    REQUIRE(first != std::string::npos);
    CHECK(log.find("bytes; the log has", first) == std::string::npos);
    CHECK(log.find("error ", first + 1) == std::string::npos);
  }
}

TEST_CASE("a plugin that hangs in a setup call is named with the call") {
  Trial trial("model", "open_hangs");
  // The plugin hangs until the log says that it does.
  ::setenv("FRT_TEST_LOG", trial.log_path().c_str(), 1);
  trial.patience = std::chrono::milliseconds(20);
  CHECK_NOTHROW(trial.run());
  CHECK(trial.log().find("test.model: its `open` has not returned") != std::string::npos);
}
