// SPDX-License-Identifier: Apache-2.0
// Broken plugins: each row is one defect of a plugin that is right otherwise, and what the host
// says of it. None crashes the host, none is accepted without a word, and every error names the
// plugin.
#include <frt/io/utf8.hpp>
#include <frt/version.hpp>

#include "trial.hpp"

using namespace broken;

TEST_CASE("the plugins without a defect work from the search to the fingerprint") {
  Trial trial;
  CHECK_NOTHROW(trial.run());
}

TEST_CASE("a broken card or file is refused with its reason where the plugin is asked for") {
  refuses({
      {"model",
       "card of a newer major version",
       FRT_ERR_ABI,
       {"built for ABI " + std::to_string(FRT_ABI_MAJOR + 1) + ".0, but this host speaks " +
        kHostAbi},
       patch_abi(FRT_ABI_MAJOR + 1, 0)},
      {"model",
       "no card",
       FRT_ERR_NOT_FOUND,
       {"no plugin 'test.model'", "defect_model.so: no plugin, it has no section .frt.card"},
       Patch{".frt.card", ".frt.cord"}},
      {"model",
       "unknown key",
       FRT_ERR_FORMAT,
       {"unknown key `summery`"},
       Patch{"summary = ", "summery = "}},
      {"model",
       "version is no version",
       FRT_ERR_FORMAT,
       {"`abi`"},
       patch_card(kCardAbi + "\n" + kSummary, "abi = \"new\"\nsummary = \"-\"")},
      {"model",
       "undefined symbol",
       FRT_ERR_FORMAT,
       {"the dynamic linker", "getenw"},
       Patch{"getenv", "getenw"}},
  });
}

// While the major number is 0 each minor number is an ABI of its own (frt/version.hpp); later a
// newer one works, and card_test says so.
TEST_CASE("a card or descriptor of another minor version is refused while the version is 0.x") {
  if (oldest_abi(FRT_ABI_MAJOR, FRT_ABI_MINOR + 1) == oldest_abi()) return;
  const auto refusal = [](uint32_t minor) {
    return "built for ABI " + std::to_string(FRT_ABI_MAJOR) + "." + std::to_string(minor) +
           ", but this host speaks " + kHostAbi;
  };
  refuses({
      {"model",
       "card of a newer minor version",
       FRT_ERR_ABI,
       {refusal(FRT_ABI_MINOR + 1)},
       patch_abi(FRT_ABI_MAJOR, FRT_ABI_MINOR + 1)},
      {"model",
       "card of an older minor version",
       FRT_ERR_ABI,
       {refusal(FRT_ABI_MINOR - 1)},
       patch_abi(FRT_ABI_MAJOR, FRT_ABI_MINOR - 1)},
      {"model",
       "descriptor_newer_minor",
       FRT_ERR_ABI,
       {"its descriptor speaks ABI " + std::to_string(FRT_ABI_MAJOR) + "." +
        std::to_string(FRT_ABI_MINOR + 1) + ", this host " + kHostAbi}},
  });
}

TEST_CASE("a broken descriptor or schema is refused before open is called") {
  refuses({
      {"model", "descriptor_size_3", FRT_ERR_ABI, {"descriptor", "says that it has 3 bytes"}},
      {"model", "descriptor_size_huge", FRT_ERR_ABI, {"descriptor", "4294967295 bytes"}},
      {"model",
       "descriptor_newer_major",
       FRT_ERR_ABI,
       {"its descriptor speaks ABI " + std::to_string(FRT_ABI_MAJOR + 1) + "."}},
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
      {"model", "schema_no_key", FRT_ERR_FORMAT, {"option 0 has no key"}},
      {"model", "schema_key_twice", FRT_ERR_FORMAT, {"'width' is there twice"}},
  });
}

TEST_CASE("a plugin whose open throws, lies or fails is named") {
  refuses({
      {"model", "open_throws", FRT_ERR_INTERNAL, {"`open` threw", "no key in the lock"}},
      {"model", "open_without_object", FRT_ERR_INTERNAL, {"open reported success but made no"}},
      {"model",
       "open_status",
       FRT_ERR_INTERNAL,
       {"status 12345, which ABI " + kHostAbi + " does not define"}},
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
      {"model", "create_throws_number", FRT_ERR_INTERNAL, {"`create` threw", "of unknown type"}},
      {"model", "create_without_object", FRT_ERR_INTERNAL, {"create reported success but made no"}},
      {"model", "create_status", FRT_ERR_INTERNAL, {"half done", "status 12345"}},
      {"model",
       "kernel_registered_twice",
       FRT_ERR_EXISTS,
       {"kernel test.own/1 comes twice for the same types"}},
      {"model", "kernel_reserved_name", FRT_ERR_INVALID_ARGUMENT, {"begin with \"frt.\" belong"}},
      {"model", "model_extension_throws", FRT_ERR_INTERNAL, {"`extension` threw"}},
      {"model", "info_null_text", FRT_ERR_ABI, {"frt_model_info has no formats"}},
      {"model", "info_garbage", FRT_ERR_FORMAT, {"architecture", "is no text"}},
      {"model", "info_status", FRT_ERR_INTERNAL, {"frt_model_info", "status 12345"}},
      {"model", "create_code_alone", FRT_ERR_IO, {": create: FRT_ERR_IO"}},
  });
}

TEST_CASE("a port that no host could use is refused when the model is made") {
  refuses({
      {"model", "port_no_buffer", FRT_ERR_MISMATCH, {"its port 'values' has no buffer"}},
      {"model",
       "port_f64",
       FRT_ERR_MISMATCH,
       {"its port 'values' is said to hold 1024 elements of f64, but its buffer has 4096 bytes"}},
      {"model", "port_no_type", FRT_ERR_MISMATCH, {"'values' has no element type"}},
      {"model", "port_extent", FRT_ERR_MISMATCH, {"'values' has extent 9223372036854775807"}},
      {"model", "port_rank", FRT_ERR_MISMATCH, {"'values' has rank 9"}},
      {"model", "port_direction", FRT_ERR_MISMATCH, {"'values' has direction 4"}},
      {"model", "port_null_name", FRT_ERR_FORMAT, {"the name of a port is NULL"}},
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
      {"model", "role_size_huge", FRT_ERR_ABI, {"frt.role.lm/1", "4294967295 bytes"}},
      {"model", "tokenizer_size_3", FRT_ERR_ABI, {"frt.tokenizer/1 says that it has 3 bytes"}},
      {"model", "tokenizer_empty", FRT_ERR_ABI, {"frt.tokenizer/1 has no vocabulary"}},
      {"model", "chat_empty", FRT_ERR_ABI, {"frt.chat/1 has no render"}},
      {"model", "capsule_size_3", FRT_ERR_ABI, {"frt.capsule/1 says that it has 3 bytes"}},
      {"model", "capsule_no_layout", FRT_ERR_ABI, {"frt.capsule/1 has no layout"}},
      {"model", "capsule_no_state", FRT_ERR_ABI, {"frt.capsule/1 gives a NULL state"}},
      {"model", "fingerprint_no_value", FRT_ERR_FORMAT, {"a text of its fingerprint is NULL"}},
      {"model",
       "fingerprint_count",
       FRT_ERR_ABI,
       {"its fingerprint has 18446744073709551615 fields"}},
      {"model", "fingerprint_null", FRT_ERR_ABI, {"its fingerprint has 1 fields at NULL"}},
      {"model", "fingerprint_garbage", FRT_ERR_FORMAT, {"fingerprint is no text"}},
  });
}

TEST_CASE("a number of a role that no host can count with, or no buffer has room for, is refused") {
  refuses({
      {"model", "entries_few", FRT_ERR_MISMATCH, {"decode_key", "0 entries; it must be 1 to"}},
      {"model", "entries_many", FRT_ERR_MISMATCH, {"1048576 entries", "max_batch = 2"}},
      {"model", "lm_info_draft", FRT_ERR_MISMATCH, {"has_draft, but has no graph draft"}},
      {"model", "layout_size_3", FRT_ERR_ABI, {"frt_capsule_layout says that it has 3 bytes"}},
      {"model", "layout_count", FRT_ERR_ABI, {"4294967295 regions"}},
      {"model", "layout_null", FRT_ERR_ABI, {"frt_capsule_layout has no regions"}},
      {"model", "layout_lag", FRT_ERR_MISMATCH, {"region 0", "row_lag = -9223372036854775808"}},
      {"model", "policy_images", FRT_ERR_MISMATCH, {"buffer images has 4096 bytes", "24576"}},
      {"model", "policy_image_dtype", FRT_ERR_MISMATCH, {"image_dtype = f16", "u8 or f32"}},
      {"model", "policy_image_f32", FRT_ERR_MISMATCH, {"buffer images has 4096 bytes", "12288"}},
      {"model", "policy_views", FRT_ERR_MISMATCH, {"views = 4294967295; it must be 1 to 256"}},
      {"model", "policy_no_views", FRT_ERR_MISMATCH, {"views = 0; it must be 1"}},
      {"model", "policy_state", FRT_ERR_MISMATCH, {"buffer proprioception", "4100"}},
      {"model", "policy_prompt", FRT_ERR_MISMATCH, {"buffer prompt_tokens", "8000"}},
      {"model", "policy_noise", FRT_ERR_MISMATCH, {"buffer noise", "16000"}},
      {"model", "policy_beta", FRT_ERR_MISMATCH, {"buffer beta", "8000"}},
      {"model", "policy_steps", FRT_ERR_MISMATCH, {"max_steps = 4294967295"}},
      {"model", "policy_branches", FRT_ERR_MISMATCH, {"guidance_branches = 4294967295"}},
      {"model", "policy_horizon", FRT_ERR_MISMATCH, {"horizon = 0; it must be 1"}},
      {"model", "policy_actions", FRT_ERR_MISMATCH, {"buffer actions", "16000"}},
      {"model", "policy_split", FRT_ERR_MISMATCH, {"has_split, but has no graph observe"}},
      {"model", "policy_split_3", FRT_ERR_MISMATCH, {"has_split = 3"}},
      {"model", "policy_continuation", FRT_ERR_MISMATCH, {"no buffer continuation"}},
      {"model", "policy_robot", FRT_ERR_MISMATCH, {"robot's action_dim = 4294967295"}},
      {"model", "critic_images", FRT_ERR_MISMATCH, {"views = 2147483648"}},
  });
}

TEST_CASE("what a plugin reports through a callback is checked when it comes") {
  refuses({
      {"model", "row_null", FRT_ERR_ABI, {"frt_selftest_row is NULL"}},
      {"model", "row_size_3", FRT_ERR_ABI, {"frt_selftest_row says that it has 3 bytes"}},
      {"model", "row_no_tensor", FRT_ERR_ABI, {"frt_selftest_row has no tensor"}},
      {"model", "row_no_gate", FRT_ERR_ABI, {"frt_selftest_row has no gate"}},
      {"model", "row_garbage", FRT_ERR_FORMAT, {"its gate is no text"}},
      {"device", "fact_null", FRT_ERR_FORMAT, {"its fact is NULL"}},
      {"device", "fact_garbage", FRT_ERR_FORMAT, {"its advice is no text"}},
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
      {"model", "fails_long_prompt", FRT_ERR_OUT_OF_RANGE, {"too long", "9 tokens; shorten it"}},
      {"model", "stream_create", FRT_ERR_FORMAT, {"no such tool"}},
      {"model", "stream_push", FRT_ERR_FORMAT, {"no such tag"}},
      {"model", "stream_finish", FRT_ERR_FORMAT, {"no such end"}},
      {"model", "stream_kind", FRT_ERR_MISMATCH, {"an event of kind 77"}},
      {"model", "stream_text", FRT_ERR_MISMATCH, {"a text that is not UTF-8"}},
      {"model", "stream_order", FRT_ERR_MISMATCH, {"do not follow one another"}},
      {"model", "stream_open", FRT_ERR_MISMATCH, {"its last tool call has no end"}},
      {"model", "stream_parse", FRT_ERR_MISMATCH, {"parse: is no object"}},
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
      {"device", "device_count_huge", FRT_ERR_ABI, {"device_count says 4294967295", "4096"}},
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
      {"device", "kernels_formats", FRT_ERR_ABI, {"more than 262144 weight formats"}},
      {"device", "kernels_null", FRT_ERR_ABI, {"list of kernels is NULL"}},
      {"device", "kernels_status", FRT_ERR_INTERNAL, {"status 12345"}},
      {"device", "kernel_size_huge", FRT_ERR_ABI, {"kernel descriptor says", "4294967295 bytes"}},
      {"device", "kernel_no_launch", FRT_ERR_INVALID_ARGUMENT, {"has no launch function"}},
      {"device", "kernel_no_name", FRT_ERR_ABI, {"kernel descriptor has no name"}},
      {"device", "kernel_garbage_name", FRT_ERR_FORMAT, {"name of a kernel is no text"}},
  });
}

TEST_CASE("a backend whose submissions or waits throw is named") {
  refuses({
      {"device", "fill_throws", FRT_ERR_INTERNAL, {"threw across the ABI: out of ink"}},
      {"device", "sync_throws", FRT_ERR_INTERNAL, {"threw across the ABI", "of unknown type"}},
  });
}

TEST_CASE("what freeing and closing throw is in the log, by the backend") {
  for (const std::string defect : {"free_throws", "close_throws"}) {
    CAPTURE(defect);
    Trial trial("device", defect);
    CHECK_NOTHROW(trial.run());
    const bool close = defect == "close_throws";
    const std::string text = std::string(close ? "device_close" : "memory_free") +
                             ": the device of context 'd' (backend 'test.device') threw across "
                             "the ABI: " +
                             (close ? "ajar" : "not mine");
    CAPTURE(trial.log());
    CHECK(trial.log().find(text) != std::string::npos);
  }
}

TEST_CASE("a survey asks no device of a backend that counts too many") {
  Trial trial("device", "device_count_huge");
  const host::Survey survey = trial.survey();
  CHECK(survey.devices.empty());
  REQUIRE(survey.plugins.size() == 1);
  CHECK(survey.plugins[0].devices == 0);
  CHECK(survey.plugins[0].problem.find("test.device: its device_count says 4294967295") !=
        std::string::npos);
}

TEST_CASE("a model whose fingerprint has no version of the state is taken, with a warning") {
  const std::string warning = "model 'm' (plugin test.model): its fingerprint has no field `state`";
  for (const char* defect : {"fingerprint_no_version", ""}) {
    CAPTURE(defect);
    Trial trial("model", defect);
    CHECK_NOTHROW(trial.run());
    CHECK((trial.log().find(warning) != std::string::npos) == (defect[0] != '\0'));
  }
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

TEST_CASE("a model that leaves objects behind is named, and its backend is not closed below them") {
  const MayLeak may_leak;
  Trial trial("model", "leaks");
  CHECK_NOTHROW(trial.run());
  const std::string log = trial.log();
  CAPTURE(log);
  CHECK(log.find(
            "plugin misbehaving test.model: device 'd' stays open, and plugin test.device is never "
            "closed: context 'd' still has 1 buffer(s)") != std::string::npos);
  CHECK(log.find("closed while a device is open") == std::string::npos);
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

TEST_CASE("a plugin in C delivers a long error whole through the log") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u4e2d";
  core::RegistryOptions options;
  options.plugin_folders = {fs::path(FRT_TEST_PLUGINS) / "c"};
  options.use_environment = false;
  options.own_folder = "/nowhere";
  options.probing = core::Probing::kNever;
  core::Registry registry(options);
  const core::LoadedPlugin& loaded = registry.load("test.talkative");
  core::Diagnostics none;
  const core::Config config =
      core::resolve_config(loaded.schema.plugin_options, {}, core::ResolveContext{}, none);
  const auto told = [&](const char* defect) {
    ::setenv("FRT_TEST_DEFECT", defect, 1);
    Trial folder;
    core::LogOptions log_options;
    const io::Descriptor file(
        ::open(folder.log_path().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
    log_options.descriptor = file.get();
    core::Log log(log_options);
    core::HostServices services(log);
    std::string seen;
    try {
      const core::OpenPlugin opened(loaded, config, services);
    } catch (const Error& error) {
      CHECK(error.status() == FRT_ERR_DEVICE);
      seen = error.what();
    }
    return std::pair(seen, folder.log());
  };
  const auto [short_text, no_log] = told("short");
  CHECK(short_text.ends_with("test.talkative: no such luck"));
  CHECK(no_log.empty());
  const auto [shortened, log] = told("long");
  const std::string& cut = shortened;
  CAPTURE(cut);
  CHECK(cut.ends_with("\u4e2d... (3000 bytes; the log has all of it)"));
  CHECK(io::is_utf8(cut));
  CHECK(log.find("error test.talkative: " + text + "\n") != std::string::npos);
  CHECK(log.find("error ", log.find("error ") + 1) == std::string::npos);  // once
  const auto [unheard, still_no_log] = told("unheard");
  CHECK(unheard.ends_with("\u4e2d... (3000 bytes)"));
  CHECK(still_no_log.empty());
}
