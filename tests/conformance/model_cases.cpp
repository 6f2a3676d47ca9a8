// SPDX-License-Identifier: Apache-2.0
// Cases of every model, and of a language model.
#include <frt/capsule.hpp>
#include <frt/contracts.hpp>
#include <frt/error.hpp>
#include <frt/reading.hpp>
#include <frt/text.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocations.hpp"
#include "bench/capsule_check.hpp"
#include "broken_rule.hpp"
#include "check.hpp"
#include "lm/engine/generate.hpp"
#include "made_model.hpp"
#include "made_text.hpp"
#include "opened.hpp"
#include "option_cases.hpp"
#include "plugin_cases.hpp"
#include "raw_model.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::conformance {
namespace {

constexpr uint64_t kTokens = 24;  // generated where runs are compared

void tables(const Subject& subject) {
  const OpenedPlugin opened(subject.plugin);
  opened.plugin.require<frt_model_v1>(FRT_EXT_MODEL);
}

void created_twice(const Subject& subject) {
  needs_checkpoint(subject);
  for (int round = 0; round < 2; ++round) const Made made(subject);
}

void roles(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  const bool lm = made.has(FRT_EXT_ROLE_LM), policy = made.has(FRT_EXT_ROLE_POLICY);
  if (lm) made->language_model();
  if (policy) host::policy_of(*made);
  if (!lm && !policy && !made.has(FRT_EXT_ROLE_CRITIC)) {
    throw Warn{"the model has no role of frt/role/: no host can drive it"};
  }
}

host::GenerationResult generated(const Subject& subject, bool eager) {
  const Made made(subject, eager);
  const host::LmModel model = made->language_model();
  host::EngineRequest request;
  const auto vocabulary = static_cast<uint64_t>(model.info().vocabulary);
  for (uint64_t i = 0; i < 5; ++i) {
    request.prompt.push_back(static_cast<int32_t>((subject.seed * 7 + i * 13) % vocabulary));
  }
  request.max_new = kTokens;
  request.sampling.top_p = 1;
  request.sampling.repetition_penalty = 1;
  host::EngineOptions options;
  options.slots = 1;
  host::Engine engine(model, nullptr, options);
  return host::generate(engine, std::move(request));
}

// What a launch does by itself while it is captured, in place of submitting it, happens once and
// never in a replay.
void captured_equals_eager(const Subject& subject) {
  needs_checkpoint(subject);
  if (!Made(subject).has(FRT_EXT_ROLE_LM)) throw Skip{"the model has no " FRT_EXT_ROLE_LM};
  const host::GenerationResult eager = generated(subject, true),
                               captured = generated(subject, false);
  const std::size_t count = std::min(eager.tokens.size(), captured.tokens.size());
  const char* reason =
      "; a kernel that works in `launch` itself, in place of submitting to its stream, runs at the "
      "capture and never again";
  for (std::size_t i = 0; i < count; ++i) {
    if (eager.tokens[i] != captured.tokens[i]) {
      fail("token " + std::to_string(i) + " is " + std::to_string(captured.tokens[i]) +
           " captured, " + std::to_string(eager.tokens[i]) + " eager" + reason);
    }
    const float a = captured.log_probabilities[i], b = eager.log_probabilities[i];
    if (std::memcmp(&a, &b, sizeof(a)) != 0) {
      fail("the log probability of token " + std::to_string(i) + " is " + std::to_string(a) +
           " captured, " + std::to_string(b) + " eager" + reason);
    }
  }
  if (eager.tokens.size() != captured.tokens.size()) {
    fail(std::to_string(captured.tokens.size()) + " tokens captured, " +
         std::to_string(eager.tokens.size()) + " eager" + reason);
  }
}

// A prompt goes over an edge of a chunk, over three of them where chunks are short. A case reads
// some eight prompts; where those are long there are fewer cases.
void bound_capsule_check(uint64_t chunk, host::CapsuleCheckOptions& options) {
  constexpr uint64_t kPrompt = 640, kReadOfCase = 8, kRead = 24000;  // tokens, prompts, tokens
  options.most_tokens = std::max(chunk + chunk / 4 + 1, std::min(3 * chunk + chunk / 2, kPrompt));
  options.cases = std::clamp<uint64_t>(kRead / (kReadOfCase * options.most_tokens), 2, 6);
}

void capsules(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  if (!made.has(FRT_EXT_CAPSULE)) throw Skip{"the model has no " FRT_EXT_CAPSULE};
  if (!made.has(FRT_EXT_ROLE_LM)) throw Skip{"the model has no " FRT_EXT_ROLE_LM};
  const host::LmModel model = made->language_model();
  model.capsules().fingerprint();
  host::CapsuleCheckOptions options;
  options.seed = subject.seed;
  options.folder = subject.folder;
  bound_capsule_check(model.info().prefill_chunk, options);
  host::CapsuleCheckResult result;
  try {
    result = host::check_capsules(model, options, [&](const auto&) {
      subject.alive();
      return false;
    });
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_OUT_OF_RANGE) throw;
    throw Skip{error.what()};  // too few slots or rows to compare anything
  }
  if (!result.failures.empty()) fail(result.failures.front() + kOutsideLayout);
}

// A capsule file of a build whose regions mean something else would be taken for a good one.
void capsule_version(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  const auto table = made->extension<frt_capsule_v1>(FRT_EXT_CAPSULE);
  if (!table) throw Skip{"the model has no " FRT_EXT_CAPSULE};
  const frt_fingerprint_field* fields = nullptr;
  uint64_t count = 0;
  frt_error error{};
  check(table->fingerprint(made->handle(), &fields, &count, &error), error, made->sender());
  if (count > 0 && !fields)
    fail("the fingerprint has " + std::to_string(count) + " fields at NULL");
  const auto is_version = [](const frt_fingerprint_field& field) {
    const auto name = checked_text(field.name, "the name of a field of the fingerprint");
    const auto value = checked_text(field.value, "a field of the fingerprint, its value");
    return name == "state" && !value.empty();
  };
  const std::span<const frt_fingerprint_field> all(fields, count);
  if (std::none_of(all.begin(), all.end(), is_version)) {
    throw Warn{
        "the fingerprint of capsules has no field `state`: give it a version of what the regions "
        "mean (frt/capsule.h), and raise it when the same regions mean something else"};
  }
}

// The functions of the role that a host calls for each step. Lists that grow once in a while are
// full after the first calls.
void hot_calls(const Subject& subject) {
  needs_checkpoint(subject);
  if (!counts_allocations()) throw Skip{"a build with a sanitizer does not count allocations"};
  const Made made(subject);
  constexpr int kWarmUp = 32, kRounds = 32;
  const auto is_hot = [&](const char* what, const auto function, const auto& call) {
    const auto* own = reinterpret_cast<const void*>(function);
    if (!function) fail(std::string("the role has no ") + what + ", which its info asks for");
    uint64_t count = 0;
    for (int round = 0; round < kWarmUp + kRounds; ++round) {
      frt_status status = FRT_OK;
      const uint64_t found = allocations_of(own, [&] { status = call(function); });
      if (status != FRT_OK) {
        fail(std::string(what) + " returns " + status_name(status) + " in call " +
             std::to_string(round) + ", of what the role says that it takes");
      }
      if (round >= kWarmUp) count += found;
    }
    if (count > 0) {
      fail(std::string(what) + " allocates memory (" + std::to_string(count) + " times in " +
           std::to_string(kRounds) + " calls), by frt/base.h [hot]: take it at setup");
    }
  };
  bool any = false;
  const frt_model model = made->handle();
  frt_shape_key key = 0;
  uint32_t entries = 0;
  if (const auto role = made->extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM)) {
    any = true;
    const auto info =
        ask<frt_lm_info>(made->sender(), [&](frt_lm_info* out) { return role->info(model, out); });
    is_hot("prefill_key", role->prefill_key,
           [&](const auto function) { return function(model, 1, &key); });
    is_hot("decode_key", role->decode_key,
           [&](const auto function) { return function(model, 1, &key, &entries); });
    if (info.has_draft) {
      is_hot("draft_key", role->draft_key,
             [&](const auto function) { return function(model, 1, 1, &key, &entries); });
      is_hot("verify_key", role->verify_key,
             [&](const auto function) { return function(model, 1, 2, &key, &entries); });
    }
  }
  if (const auto role = made->extension<frt_role_policy_v1>(FRT_EXT_ROLE_POLICY)) {
    any = true;
    const auto info = ask<frt_policy_info>(
        made->sender(), [&](frt_policy_info* out) { return role->info(model, out); });
    frt_policy_shape shape{};
    shape.struct_size = sizeof(shape);
    const auto key_of = [&](const auto function) { return function(model, &shape, &key); };
    is_hot("infer_key", role->infer_key, key_of);
    if (info.has_split >= 1) {
      is_hot("observe_key", role->observe_key, key_of);
      is_hot("act_key", role->act_key, key_of);
    }
    if (info.has_split == 2) {
      is_hot("vision_key", role->vision_key, key_of);
      is_hot("prefix_key", role->prefix_key, key_of);
    }
  }
  if (!any) throw Skip{"the model has no role with [hot] functions"};
}

void rare_options(const Subject& subject) {
  needs_checkpoint(subject);
  const RawModel raw(subject);
  try_options(
      raw.loaded().schema.options, subject.options, "model", "create",
      [&](const std::vector<Option>& more) { return raw.create(checkpoint_of(subject), more); });
}

// Goldens that are none are refused, and no row is reported of them.
void selftest(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  const auto table = made->extension<frt_selftest_v1>(FRT_EXT_SELFTEST);
  if (!table) throw Skip{"the model has no " FRT_EXT_SELFTEST};
  const std::string garbage = subject.folder + "/garbage.safetensors";
  std::ofstream(garbage) << "no goldens";
  for (const std::string& path : {subject.folder + "/no-such-goldens", garbage}) {
    subject.alive();
    uint64_t rows = 0;
    const Reply reply = asked(made->sender(), "run", [&](Reply& answer) {
      const frt_selftest_report count = [](void* user, const frt_selftest_row*) -> frt_status {
        ++*static_cast<uint64_t*>(user);
        return FRT_OK;
      };
      return table->run(made->handle(), path.c_str(), count, &rows, &answer.error);
    });
    require_refusal(reply, "the self-test with the goldens " + path);
    if (rows > 0) fail("the self-test reports rows of goldens that are none, " + path);
  }
}

void no_checkpoint(const Subject& subject) {
  needs_checkpoint(subject);
  const Creation made = RawModel(subject).create(subject.folder + "/no-such-checkpoint", {});
  if (made.status == FRT_OK) throw Warn{"`create` takes a checkpoint that does not exist"};
  if (!has_words(made.error)) {
    fail(std::string("a checkpoint that does not exist: `create` returns ") +
         status_name(made.status) + " without a message; name the file in frt_error");
  }
}

void unknown_flags(const Subject& subject) {
  needs_checkpoint(subject);
  const Creation made = RawModel(subject).create(checkpoint_of(subject), {}, kUnknownFlag);
  Reply reply;
  reply.status = made.status;
  reply.error = made.error;
  require_refusal(reply, "create with a flag that no version has", FRT_ERR_UNSUPPORTED);
}

// A device that still has objects of a model cannot be closed, nor can its backend.
void leaves_nothing(const Subject& subject) {
  needs_checkpoint(subject);
  for (const bool succeeds : {true, false}) {
    RawModel raw(subject);
    const std::string checkpoint =
        succeeds ? checkpoint_of(subject) : subject.folder + "/no-such-checkpoint";
    const Creation made = raw.create(checkpoint, {});
    if (succeeds) check(made.status, made.error, raw.sender() + ": create");
    try {
      raw.close_device();
    } catch (const Error& error) {
      fail(std::string(made.status == FRT_OK ? "after `destroy`: " : "after a failed `create`: ") +
           error.what() + "; a model releases all that it made");
    }
  }
}

}  // namespace

void add_model_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"model tables", tables, true});
  cases.push_back({"model created twice", created_twice, true});
  cases.push_back({"model leaves nothing behind", leaves_nothing});
  cases.push_back({"model roles", roles, true});
  cases.push_back({"model captured equals eager", captured_equals_eager});
  cases.push_back({"model capsules", capsules});
  add_tokenizer_cases(cases);
  add_chat_cases(cases);
  add_policy_cases(cases);
  add_prompt_cases(cases);
  add_guidance_cases(cases);
  cases.push_back({"model capsule version", capsule_version});
  cases.push_back({"model hot calls do not allocate", hot_calls});
  cases.push_back({"model rare options", rare_options});
  cases.push_back({"model self-test", selftest});
  cases.push_back({"model no checkpoint", no_checkpoint});
  cases.push_back({"model unknown flags", unknown_flags});
}

}  // namespace frt::conformance
