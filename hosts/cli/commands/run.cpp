// SPDX-License-Identifier: Apache-2.0
// frt-host run: one prompt, one continuation. Text goes to stdout as it is written; with --json
// one object at the end.
//
// With --from-capsule the run begins where the one that saved the capsule ended, in this or in
// another process: what it writes is what that run would have written next, bit for bit. Unless
// the command line says otherwise it samples as that run did.
#include <fmt/format.h>
#include <unistd.h>
#include <frt/io/file.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "cli/answer_view.hpp"
#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/prompt_options.hpp"
#include "cli/terminal/interrupted.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/prompt_progress.hpp"
#include "cli/terminal/signals.hpp"
#include "lm/engine/generate.hpp"
#include "lm/run_record.hpp"
#include "lm/stop_matcher.hpp"
#include "runtime/lm_settings.hpp"

namespace frt::host {
namespace {

struct RunOptions {
  std::string manifest;
  std::string model;
  std::string prompt;
  std::string prompt_file;
  std::vector<int32_t> prompt_ids;
  bool chat = false;
  std::string system;
  bool no_thinking = false;
  bool no_special_tokens = false, allow_special_tokens = false;
  bool log_probabilities = false;
  bool json = false;
  std::string save_capsule, from_capsule;
  bool replace_capsule = false;
  std::string record;
  PromptOptions generation;
  Option prompt_option;
  Option file_option;
  Option ids_option;
};

const std::string kAffinity = "run";
const std::string kOwner;  // nobody's in particular

constexpr uint64_t kMostPrompt = uint64_t{64} << 20;  // bytes

// The prompt's text; std::nullopt-like: only called when no ids were given.
std::string prompt_text(const RunOptions& options) {
  if (options.prompt_option.given()) return options.prompt;
  if (options.file_option.given() && options.prompt_file != "-") {
    return io::read_file(options.prompt_file, "prompt file", kMostPrompt);
  }
  if (!options.file_option.given() && isatty(STDIN_FILENO)) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "no prompt: give --prompt, --prompt-file, --prompt-ids, or pipe text in");
  }
  return io::read_to_end(STDIN_FILENO, "the prompt", kMostPrompt);
}

nlohmann::ordered_json chat_options(const RunOptions& options) {
  nlohmann::ordered_json result = {{"add_generation_prompt", true}};
  if (options.no_thinking) result["enable_thinking"] = false;
  if (options.allow_special_tokens) result["allow_special_tokens"] = true;
  return result;
}

bool has_prompt(const RunOptions& options) {
  return options.ids_option.given() || options.prompt_option.given() || options.file_option.given();
}

std::vector<int32_t> prompt_ids(const RunOptions& options, const LmModel& model) {
  if (options.ids_option.given()) return options.prompt_ids;
  const std::string text = stage(ExitCode::kUsage, [&] { return prompt_text(options); });
  if (text.empty()) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "the prompt is empty; give at least one character");
  }
  if (options.chat) {
    auto messages = nlohmann::ordered_json::array();
    if (!options.system.empty()) {
      messages.push_back({{"role", "system"}, {"content", options.system}});
    }
    messages.push_back({{"role", "user"}, {"content", text}});
    return model.encode(model.render(messages, {}, chat_options(options)));
  }
  uint32_t flags = options.no_special_tokens ? FRT_ENCODE_PLAIN : 0;
  if (!options.from_capsule.empty()) flags |= FRT_ENCODE_CONTINUES;
  return model.encode(text, flags);
}

double rate(uint64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// `message`: what an answer says, its reasoning apart; null without --chat.
nlohmann::ordered_json report(const GenerationResult& result, const std::string& text,
                              const nlohmann::ordered_json& message, const RunOptions& options,
                              const frt_sampling_params& sampling, const LoadedModel& loaded) {
  const PrefixDecision& prefix = result.prefix;
  nlohmann::ordered_json json = {
      {"model", loaded.name()},
      {"text", text},
      {"ids", result.tokens},
      {"finish", finish_name(result.finish)},
      {"prompt_tokens", result.prompt_tokens},
      {"prefix",
       {{"action", prefix_action_name(prefix.action)},
        {"reused", prefix.reused},
        {"reason", prefix.reason}}},
      {"new_tokens", result.tokens.size()},
      {"seed", sampling.seed},
      {"load_seconds", loaded.load_seconds()},
      {"prefill_seconds", result.prefill_seconds},
      {"decode_seconds", result.decode_seconds},
      {"captures_since_ready", loaded.context().counters().captures_since_ready}};
  if (result.stop_token >= 0) json["stop_token"] = result.stop_token;
  if (options.log_probabilities) json["logprobs"] = result.log_probabilities;
  if (!message.is_null()) json["message"] = message;
  return json;
}

// What was fed before this run: the capsule's, or nothing.
using Before = std::shared_ptr<const CapsuleContent>;

// Sampling as the command line says, then as the capsule was taken, then as the checkpoint says.
frt_sampling_params sampling_for(const RunOptions& options, const Before& before,
                                 const nlohmann::ordered_json& defaults) {
  SamplingChoice choice = options.generation.sampling;
  if (before && !choice.seed) choice.seed = before->sampling.seed;
  return resolve_sampling(choice, before ? sampling_to_json(before->sampling) : defaults);
}

void write_record(const RunOptions& options, const LoadedModel& loaded, const LmModel& model,
                  const Before& before, const std::vector<int32_t>& prompt,
                  const frt_sampling_params& sampling, const GenerationResult& result,
                  const FeedPath& path) {
  RunRecord record;
  record.manifest = std::filesystem::absolute(options.manifest).string();
  record.model = loaded.name();
  for (const frt_fingerprint_field& field : model.capsules().fingerprint()) {
    record.fingerprint.emplace_back(field.name, field.value);
  }
  if (before) {
    record.capsule = RunRecord::Start{options.from_capsule, before->digest, before->boundary()};
    record.pending_shown = before->pending.shown;
  }
  record.chunk = model.info().prefill_chunk;
  record.prompt = prompt;
  record.path = path;
  record.sampling = sampling;
  record.tokens = result.tokens;
  record.log_probabilities = result.log_probabilities;
  write_record(record, options.record);
}

ExitCode run(App& app, const RunOptions& options) {
  const uint64_t max_new = options.generation.max_new_tokens();
  LoadedModel loaded = load_model(app, options.manifest, options.model);
  const LmModel model = loaded.language_model();
  const nlohmann::ordered_json defaults = model.generation_defaults();

  // A run keeps nothing in memory for later: it is one prompt.
  CapsuleSettings settings = capsule_settings(loaded.runtime().manifest(), loaded.name());
  settings.capsules.device_bytes = settings.capsules.host_bytes = settings.capsules.disk_bytes = 0;
  std::unique_ptr<CapsuleRegistry> registry;
  if (!options.save_capsule.empty() || !options.from_capsule.empty()) {
    registry = open_capsules(app.log(), model, settings.capsules);
    registry->require_folder();
  }
  // Now, and not when the text is there and cannot be kept.
  if (!options.save_capsule.empty()) {
    registry->require_name(options.save_capsule, options.replace_capsule);
  }
  // A capsule and a record end where the text does, a stop string in the middle of a round
  // included.
  if (!options.save_capsule.empty() || !options.record.empty()) {
    settings.session.speculation = Drafting::kOff;
  }
  Before before;
  EngineOptions engine_options;
  engine_options.slots = 1;
  engine_options.session = settings.session;
  Engine engine(model, registry.get(), engine_options);
  const auto with_session = [&](const std::function<void(Session&)>& work) {
    engine.call(
        [&](EngineAccess& access) { work(*access.claim_session(kOwner, kAffinity, nullptr)); });
  };
  if (!options.from_capsule.empty()) {
    with_session([&](Session& session) { before = session.restore(options.from_capsule); });
  }

  EngineRequest request;
  request.owner = kOwner;
  request.affinity = kAffinity;
  request.keep = false;
  std::vector<int32_t> prompt;
  if (!before || has_prompt(options)) prompt = prompt_ids(options, model);
  if (!prompt.empty() && before) {
    request.prompt = before->tokens;
    // The last token of a text that was given out was not fed yet: the prompt goes on behind it.
    if (before->pending.shown) prompt.insert(prompt.begin(), before->pending.token);
  }
  request.prompt.insert(request.prompt.end(), prompt.begin(), prompt.end());
  request.resumes = before && request.prompt.empty();
  request.max_new = max_new;
  request.sampling =
      stage(ExitCode::kUsage, [&] { return sampling_for(options, before, defaults); });
  if (!options.generation.ignore_eos) request.stop_ids = stop_token_ids(defaults);

  const bool has_text = model.has_tokenizer();
  StopMatcher stops =
      stage(ExitCode::kUsage, [&] { return StopMatcher(options.generation.stops); });
  std::unique_ptr<TextStream> decoder;
  if (has_text) decoder = std::make_unique<TextStream>(model, FRT_DECODE_SKIP_SPECIAL);
  GenerationReader reader;
  // The engine's thread looks for stop strings, too: the text ends there, whoever is still writing.
  StopMatcher engine_stops = stops;
  std::unique_ptr<TextStream> engine_decoder;
  if (has_text && !options.generation.stops.empty()) {
    engine_decoder = std::make_unique<TextStream>(model, FRT_DECODE_SKIP_SPECIAL);
    reader.ends = [&](int32_t id, float) {
      engine_stops.push(engine_decoder->push(id));
      return engine_stops.stopped() ? Next::kStop : Next::kContinue;
    };
  }
  std::string text;
  ModelText shown_text;
  std::optional<AnswerView> view;
  if (options.chat && !options.json && max_new > 0) view.emplace(app, model, chat_options(options));
  bool first = true;
  // False, which ends the run, if nobody takes the text.
  const auto emit = [&](const std::string& piece) {
    text += piece;
    if (view) return view->push(piece);
    return options.json || write_out(shown_text.push(piece));
  };
  const InterruptGuard interrupt;
  PromptProgress progress(app.draws_progress());
  reader.on_prefill = progress.callback();
  reader.cancelled = [] { return InterruptGuard::requested(); };
  reader.on_token = [&](int32_t id) {
    if (has_text) return emit(stops.push(decoder->push(id)));
    const bool shown = options.json || write_out(fmt::format("{}{}", first ? "" : ",", id));
    first = false;
    return shown;
  };

  GenerationResult result = generate(engine, request, reader);
  if (!request.resumes) {
    result.prefix.reason = prefix_reason(result.prefix, request.prompt, model);
  }
  progress.finish();
  if (result.finish == Finish::kCancelled && result.prompt_read < result.prompt_tokens) {
    throw Error(FRT_ERR_CANCELLED,
                fmt::format("stopped on request: {} of {} tokens of the prompt were read, nothing "
                            "was written or saved",
                            result.prompt_read, result.prompt_tokens));
  }
  if (has_text) {
    if (!stops.stopped()) emit(stops.push(decoder->flush()));
    if (!stops.stopped()) emit(stops.flush());
  }

  uint64_t saved = 0;  // tokens
  const EndAllowance files(kKeepTime);
  if (!options.record.empty()) {
    FeedPath path;
    with_session([&](const Session& session) { path = session.journal().path(); });
    write_record(options, loaded, model, before, prompt, request.sampling, result, path);
  }
  if (!options.save_capsule.empty()) {
    with_session([&](Session& session) {
      session.save(options.save_capsule, request.sampling, nlohmann::ordered_json::object(),
                   options.replace_capsule);
      saved = session.journal().size();
    });
  }
  if (options.json) {
    nlohmann::ordered_json message;
    if (options.chat) message = model.parse(text, {}, chat_options(options));
    print_json(report(result, text, message, options, request.sampling, loaded));
  } else if (view) {
    view->finish();
  } else if (max_new > 0) {
    write_out(shown_text.flush() + "\n");
  }
  if (!app.options().quiet) {
    const uint64_t after_first = result.tokens.empty() ? 0 : result.tokens.size() - 1;
    print_err(
        "prompt {} tokens in {:.1f} ms ({:.0f} tok/s), {} new tokens at {:.1f} "
        "tok/s, finish: {}, seed {}\n",
        result.prompt_tokens, result.prefill_seconds * 1e3,
        rate(result.prompt_tokens, result.prefill_seconds), result.tokens.size(),
        rate(after_first, result.decode_seconds), finish_name(result.finish),
        request.sampling.seed);
    if (before) {
      print_err("began with capsule '{}': {} tokens\n", options.from_capsule, before->boundary());
    }
    if (!options.save_capsule.empty()) {
      print_err("saved capsule '{}': {} tokens, in {}\n", options.save_capsule, saved,
                settings.capsules.folder.string());
    }
  }
  if (registry) {
    engine.call([&](EngineAccess& access) { show_notices(app.log(), *access.registry()); });
  }
  if (result.finish != Finish::kCancelled) return ExitCode::kOk;
  return InterruptGuard::requested() ? interrupted_status() : ExitCode::kFailed;
}

}  // namespace

void add_run_command(App& app) {
  auto options = std::make_shared<RunOptions>();
  Command command = app.program().add_subcommand("run", "Continue one prompt");
  command.add_option("manifest", options->manifest, kManifestDoc).required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  options->prompt_option = command.add_option("-p,--prompt", options->prompt, "Continue this text");
  options->file_option = command
                             .add_option("--prompt-file", options->prompt_file,
                                         "Read the prompt from this file; -: from stdin")
                             .type_name("FILE");
  options->ids_option =
      command
          .add_id_list("--prompt-ids", options->prompt_ids, "Continue these token ids, e.g. 1,2,3")
          .type_name("IDS")
          .one_each();
  options->prompt_option.excludes(options->file_option).excludes(options->ids_option);
  options->file_option.excludes(options->ids_option);
  Option chat = command
                    .add_flag("--chat", options->chat,
                              "Send the prompt as a user's message instead of plain text")
                    .excludes(options->ids_option);
  command.add_option("--system", options->system, "With --chat: set the system message")
      .needs(chat);
  command.add_flag("--no-thinking", options->no_thinking, "With --chat: answer without reasoning")
      .needs(chat);
  command
      .add_flag("--allow-special-tokens", options->allow_special_tokens,
                "With --chat: read <|im_end|> and its like in the messages as control tokens")
      .needs(chat);
  command
      .add_flag("--no-special-tokens", options->no_special_tokens,
                "Without --chat: read <|im_end|> and its like in the prompt as plain text")
      .excludes(chat)
      .excludes(options->ids_option);
  Option json =
      command.add_flag("--json", options->json, "Print one JSON object on stdout instead of text");
  command.add_flag("--logprobs", options->log_probabilities, "With --json: add log probabilities")
      .needs(json);
  Option save = command
                    .add_option("--save-capsule", options->save_capsule,
                                "Save the state after the last token as a capsule of this name")
                    .type_name("NAME");
  command
      .add_flag("--replace", options->replace_capsule,
                "With --save-capsule: replace a capsule of that name")
      .needs(save);
  command.add_option("--from-capsule", options->from_capsule, "Continue from this capsule")
      .type_name("NAME");
  command.add_option("--record", options->record, "Write what `frt-host replay` needs to this file")
      .type_name("FILE");
  options->generation.add_to(command);
  command.examples(
      {"run share/frt/manifests/demo.toml --prompt 'Once upon a time' --max-new 60 --seed 1",
       "run my.toml --chat --prompt 'What is 3 + 4?' --json",
       "run my.toml --prompt-file long.txt --max-new 0 --save-capsule long",
       "run my.toml --from-capsule long"});
  app.add_command(command, [&app, options] { return run(app, *options); });
}

}  // namespace frt::host
