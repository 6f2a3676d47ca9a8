// SPDX-License-Identifier: Apache-2.0
// frt-host run: one prompt, one continuation. Text goes to stdout as it is written; with --json
// one object at the end.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>

#include "cli/app.hpp"
#include "cli/loaded_model.hpp"
#include "cli/prompt_options.hpp"
#include "cli/signals.hpp"
#include "lm/generator.hpp"
#include "lm/stop_matcher.hpp"

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
  bool log_probabilities = false;
  bool json = false;
  PromptOptions generation;
  CLI::Option* prompt_given = nullptr;
  CLI::Option* file_given = nullptr;
  CLI::Option* ids_given = nullptr;
};

std::string read_all(std::istream& stream) {
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The prompt's text; std::nullopt-like: only called when no ids were given.
std::string prompt_text(const RunOptions& options) {
  if (options.prompt_given->count() > 0) return options.prompt;
  if (options.file_given->count() > 0 && options.prompt_file != "-") {
    std::ifstream file(options.prompt_file, std::ios::binary);
    if (!file) {
      throw ExitError(ExitCode::kUsage, FRT_ERR_NOT_FOUND,
                      "cannot read the prompt file " + options.prompt_file);
    }
    return read_all(file);
  }
  if (options.file_given->count() == 0 && isatty(STDIN_FILENO)) {
    throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT,
                    "no prompt: give --prompt, --prompt-file, --prompt-ids, or pipe text in");
  }
  return read_all(std::cin);
}

nlohmann::ordered_json chat_options(const RunOptions& options) {
  nlohmann::ordered_json result = {{"add_generation_prompt", true}};
  if (options.no_thinking) result["enable_thinking"] = false;
  return result;
}

std::vector<int32_t> prompt_ids(const RunOptions& options, const LmModel& model) {
  if (options.ids_given->count() > 0) return options.prompt_ids;
  std::string text = prompt_text(options);
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
    text = model.render(messages, {}, chat_options(options));
  }
  return model.encode(text);
}

// Writes text to stdout; a reader that went away ends the run.
bool show(const std::string& text) {
  return text.empty() || (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                          std::fflush(stdout) == 0);
}

double rate(uint64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

nlohmann::ordered_json report(const GenerationResult& result, const std::string& text,
                              const RunOptions& options, const frt_sampling_params& sampling,
                              const LoadedModel& loaded) {
  nlohmann::ordered_json json = {
      {"model", loaded.name()},
      {"text", text},
      {"ids", result.tokens},
      {"finish", finish_name(result.finish)},
      {"prompt_tokens", result.prompt_tokens},
      {"new_tokens", result.tokens.size()},
      {"seed", sampling.seed},
      {"load_seconds", loaded.load_seconds()},
      {"prefill_seconds", result.prefill_seconds},
      {"decode_seconds", result.decode_seconds},
      {"captures_since_ready", loaded.context().counters().captures_since_ready}};
  if (result.stop_token >= 0) json["stop_token"] = result.stop_token;
  if (options.log_probabilities) json["logprobs"] = result.log_probabilities;
  return json;
}

ExitCode run(App& app, const RunOptions& options) {
  const uint64_t max_new = options.generation.max_new_tokens();
  LoadedModel loaded(app, options.manifest, options.model);
  const LmModel model = loaded.language_model();
  const nlohmann::ordered_json defaults = model.generation_defaults();

  GenerationRequest request;
  request.prompt = prompt_ids(options, model);
  request.max_new = max_new;
  request.sampling = stage(ExitCode::kUsage,
                           [&] { return resolve_sampling(options.generation.sampling, defaults); });
  if (!options.generation.ignore_eos) request.stop_ids = stop_token_ids(defaults);

  const bool has_text = model.has_tokenizer();
  StopMatcher stops =
      stage(ExitCode::kUsage, [&] { return StopMatcher(options.generation.stops); });
  std::unique_ptr<TextStream> decoder;
  if (has_text) decoder = std::make_unique<TextStream>(model, FRT_DECODE_SKIP_SPECIAL);
  std::string text;
  bool first = true;
  const auto emit = [&](const std::string& piece) {
    text += piece;
    return options.json || show(piece);
  };
  const InterruptGuard interrupt;
  request.on_token = [&](int32_t id, float) {
    bool shown;
    if (has_text) {
      shown = emit(stops.push(decoder->push(id)));
    } else {
      shown = options.json || show(fmt::format("{}{}", first ? "" : ",", id));
      first = false;
    }
    if (!shown || InterruptGuard::requested()) return Next::kCancel;
    return stops.stopped() ? Next::kStop : Next::kContinue;
  };

  Generator generator(model, 0);
  const GenerationResult result = generator.run(request);
  if (has_text) {
    if (!stops.stopped()) emit(stops.push(decoder->flush()));
    if (!stops.stopped()) emit(stops.flush());
  }

  if (options.json) {
    show(report(result, text, options, request.sampling, loaded)
             .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n");
  } else if (max_new > 0) {
    show("\n");
  }
  if (!app.options().quiet) {
    const uint64_t after_first = result.tokens.empty() ? 0 : result.tokens.size() - 1;
    std::fputs(fmt::format("prompt {} tokens in {:.1f} ms ({:.0f} tok/s), {} new tokens at {:.1f} "
                           "tok/s, finish: {}, seed {}\n",
                           result.prompt_tokens, result.prefill_seconds * 1e3,
                           rate(result.prompt_tokens, result.prefill_seconds), result.tokens.size(),
                           rate(after_first, result.decode_seconds), finish_name(result.finish),
                           request.sampling.seed)
                   .c_str(),
               stderr);
  }
  return result.finish == Finish::kCancelled ? ExitCode::kFailed : ExitCode::kOk;
}

}  // namespace

void add_run_command(App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.parser().add_subcommand("run", "Continue one prompt");
  command->add_option("manifest", options->manifest, "The manifest (TOML)")->required();
  command->add_option("--model", options->model, "Which model of the manifest")->type_name("NAME");
  options->prompt_given = command->add_option("-p,--prompt", options->prompt, "The prompt");
  options->file_given =
      command->add_option("--prompt-file", options->prompt_file, "Read it from a file; -: stdin")
          ->type_name("FILE");
  options->ids_given =
      command->add_option("--prompt-ids", options->prompt_ids, "The prompt as ids: 1,2,3")
          ->type_name("IDS")
          ->delimiter(',')
          ->allow_extra_args(false);
  options->prompt_given->excludes(options->file_given)->excludes(options->ids_given);
  options->file_given->excludes(options->ids_given);
  command->add_flag("--chat", options->chat, "The prompt is a user's message, not plain text");
  command->add_option("--system", options->system, "With --chat: the system message");
  command->add_flag("--no-thinking", options->no_thinking, "With --chat: answer without reasoning");
  command->add_flag("--logprobs", options->log_probabilities, "With --json: log probabilities");
  command->add_flag("--json", options->json, "One JSON object on stdout instead of text");
  options->generation.add_to(*command);
  app.add_command(command, [&app, options] { return run(app, *options); });
}

}  // namespace frt::host
