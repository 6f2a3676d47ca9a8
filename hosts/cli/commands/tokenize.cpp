// SPDX-License-Identifier: Apache-2.0
// frt-host tokenize: text, or a conversation as the model's chat format renders it, as token ids.
// The model is made without its weights.
#include <fmt/format.h>
#include <unistd.h>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/terminal/output.hpp"
#include "lm/text_model.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostText = uint64_t{64} << 20;  // bytes
constexpr uint64_t kMostTokens = uint64_t{1} << 22;

struct TokenizeOptions {
  std::string manifest, model, text, text_file, chat_file;
  bool no_special_tokens = false, continues = false, json = false;
  Option text_option, file_option, chat_option;
};

[[noreturn]] void refuse_usage(const std::string& text) {
  throw ExitError(ExitCode::kUsage, FRT_ERR_INVALID_ARGUMENT, text);
}

std::string given_text(const TokenizeOptions& options) {
  if (options.text_option.given()) return options.text;
  if (options.file_option.given() && options.text_file != "-") {
    return io::read_file(options.text_file, "text file", kMostText);
  }
  if (!options.file_option.given() && isatty(STDIN_FILENO)) {
    refuse_usage("no text: give TEXT, --file or --chat, or pipe text in");
  }
  return io::read_to_end(STDIN_FILENO, "the text", kMostText);
}

// A list of messages, or {"messages", "tools"?, "options"?}.
ChatPrompt rendered(const TokenizeOptions& options, const TextModel& model) {
  const Json given = io::read_json_file(options.chat_file, {.bytes = kMostText});
  if (given.is_array()) return model.render(given, nullptr, nullptr);
  if (!given.is_object() || !given.contains("messages")) {
    refuse_usage(options.chat_file +
                 ": expected a list of messages, or an object with \"messages\"");
  }
  for (const auto& [key, value] : given.items()) {
    if (key != "messages" && key != "tools" && key != "options") {
      refuse_usage(options.chat_file + ": unknown key \"" + key +
                   "\"; known: messages, tools, options");
    }
  }
  return model.render(given["messages"], given.value("tools", Json()),
                      given.value("options", Json()));
}

void show(const TokenizeOptions& options, const TextModel& model, const Json& text,
          const std::vector<int32_t>& ids) {
  // A character of several tokens stands with the last of them.
  std::vector<std::string> pieces;
  if (!ids.empty()) {
    TextStream decoder(model, 0);
    for (const int32_t id : ids) pieces.push_back(decoder.push(id));
    pieces.back() += decoder.flush();
  }
  if (options.json) {
    Json report = {{"model", model.name()}};
    if (!text.is_null()) report["text"] = text;
    report["count"] = ids.size();
    report["ids"] = ids;
    report["pieces"] = pieces;
    return print_json(report);
  }
  if (!text.is_null()) print_out("{}\n\n", text.get_ref<const std::string&>());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    print_out("{:>8}  {}\n", ids[i], Json(pieces[i]).dump());
  }
}

ExitCode tokenize(App& app, const TokenizeOptions& options) {
  LoadOptions load;
  load.flags = FRT_MODEL_WITHOUT_WEIGHTS;
  LoadedModel loaded = load_model(app, options.manifest, options.model, load);
  const TextModel model(loaded.table(), loaded.handle(), loaded.name(), loaded.sender());
  Json text;
  std::vector<int32_t> ids;
  if (options.chat_option.given()) {
    const ChatPrompt prompt = rendered(options, model);
    text = prompt.text;
    ids = model.encode_prompt(prompt, kMostTokens);
  } else {
    const uint32_t flags = (options.no_special_tokens ? FRT_ENCODE_PLAIN : 0) |
                           (options.continues ? FRT_ENCODE_CONTINUES : 0);
    ids = model.encode_text(given_text(options), flags, kMostTokens);
  }
  show(options, model, text, ids);
  if (!app.options().quiet) print_err("{} tokens\n", ids.size());
  return ExitCode::kOk;
}

}  // namespace

void add_tokenize_command(App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  Command command =
      app.program().add_subcommand("tokenize", "Print the token ids of a text or a conversation");
  command.add_option("manifest", options->manifest, kManifestDoc).required();
  options->text_option = command.add_option("text", options->text, "Tokenize this text");
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  options->file_option =
      command
          .add_option("--file", options->text_file, "Read the text from this file; -: from stdin")
          .type_name("FILE")
          .excludes(options->text_option);
  options->chat_option = command
                             .add_option("--chat", options->chat_file,
                                         "Render a conversation first: a JSON list of messages, or "
                                         "an object with messages, tools and options")
                             .type_name("FILE")
                             .excludes(options->text_option)
                             .excludes(options->file_option);
  command
      .add_flag("--no-special-tokens", options->no_special_tokens,
                "Read <|im_end|> and its like in the text as plain text")
      .excludes(options->chat_option);
  command
      .add_flag("--continues", options->continues,
                "Leave out the token that begins a sequence; the text continues one")
      .excludes(options->chat_option);
  command.add_flag("--json", options->json, "Print one JSON object on stdout");
  command.examples({"tokenize share/frt/manifests/demo.toml 'Once upon a time'",
                    "tokenize my.toml --chat messages.json --json"});
  app.add_command(command, [&app, options] { return tokenize(app, *options); });
}

}  // namespace frt::host
