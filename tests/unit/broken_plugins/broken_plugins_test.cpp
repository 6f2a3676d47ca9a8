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
       {"no plugin 'test.model'", "faulty_model.so: no plugin, it has no section .frt.card"},
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
      {"model", "create_without_object", FRT_ERR_INTERNAL, {"create reported success but made no"}},
      {"model", "create_status", FRT_ERR_INTERNAL, {"half done", "status 12345"}},
      {"model",
       "kernel_registered_twice",
       FRT_ERR_EXISTS,
       {"kernel test.own/1 comes twice for the same types"}},
      {"model", "kernel_reserved_name", FRT_ERR_INVALID_ARGUMENT, {"begin with \"frt.\" belong"}},
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
