// SPDX-License-Identifier: Apache-2.0
// frt-host chat: a dialogue in the model's own format. The answer goes to stdout, everything else
// to stderr, so that a transcript can be piped. Ctrl-C stops an answer, not the program.
#include <fmt/format.h>

#include <cstdio>
#include <frt/core/config.hpp>
#include <map>
#include <memory>
#include <sstream>

#include "cli/app.hpp"
#include "cli/capsule_setup.hpp"
#include "cli/conversation.hpp"
#include "cli/line_reader.hpp"
#include "cli/loaded_model.hpp"
#include "cli/prompt_options.hpp"
#include "cli/signals.hpp"

namespace frt::host {
namespace {

struct ChatCommandOptions {
  std::string manifest, model, system, from_capsule;
  bool no_thinking = false;
  bool drop_thinking = false;
  PromptOptions generation;
};

constexpr const char* kHelp = R"(/help                this text
/reset               forget the conversation, keep the system message
/system TEXT         set the system message; without TEXT: remove it
/think on|off        answer with or without reasoning
/set NAME=VALUE      temperature, top-k, top-p, min-p, repetition-penalty,
                     presence-penalty, frequency-penalty, seed, max-new
/save NAME           keep the conversation and the model's state on the disk
/restore NAME        go on with one, or with a branch
/fork NAME           start a branch here and go on in it
/back [N]            take the last turn back, or the last N
/branches            list them
/export FILE         write the messages as JSON
/import FILE         read some back
/stats               figures of the last answer
/exit                leave (also Ctrl-D)
End a line with \ to go on in the next.
)";

class ChatSession {
 public:
  ChatSession(App& app, const ChatCommandOptions& options, LoadedModel& loaded)
      : app_(app),
        options_(options),
        model_(loaded.language_model()),
        defaults_(model_.generation_defaults()),
        settings_(capsule_settings(loaded.runtime().manifest(), loaded.name())),
        registry_(open_capsules(app, model_, settings_.capsules)),
        conversation_(model_, *registry_, settings_.session,
                      {{"enable_thinking", !options.no_thinking},
                       {"preserve_thinking", !options.drop_thinking}}) {
    conversation_.set_system(options.system);
    request_.sampling =
        stage(ExitCode::kUsage, [&] { return resolve_sampling(choice(), defaults_); });
    request_.max_new = options_.generation.max_new_tokens();
    if (!options_.generation.ignore_eos) request_.stop_ids = stop_token_ids(defaults_);
    if (!options.from_capsule.empty()) restore(options.from_capsule);
  }

  ExitCode run() {
    LineReader reader(state_file("chat_history"));
    if (reader.interactive() && !app_.options().quiet) {
      fmt::print(stderr, "Talk to {}. /help lists commands, Ctrl-D leaves.\n", model_.name());
    }
    const InterruptGuard interrupt;
    for (;;) {
      InterruptGuard::reset();
      const std::optional<std::string> text = read_message(reader);
      if (!text) break;
      if (text->find_first_not_of(" \t") == std::string::npos) continue;
      try {
        if (text->front() == '/') {
          if (!command(*text)) break;
        } else {
          answer(*text);
        }
        show_notices(app_, *registry_);
      } catch (const Error& error) {
        if (error.status() == FRT_ERR_DEVICE_LOST) throw;
        fmt::print(stderr, "error: {}\n", error.what());
        failed_ = true;
      }
    }
    // A person saw the error; a pipe needs the status.
    return failed_ && !reader.interactive() ? ExitCode::kFailed : ExitCode::kOk;
  }

 private:
  SamplingChoice& choice() { return options_.generation.sampling; }

  static std::optional<std::string> read_message(LineReader& reader) {
    std::optional<std::string> line = reader.read("> ");
    while (line && !line->empty() && line->back() == '\\') {
      line->back() = '\n';
      const std::optional<std::string> more = reader.read(". ");
      if (!more) break;
      *line += *more;
    }
    return line;
  }

  // Reasoning is dimmed on a terminal: it ends at </think>.
  void answer(const std::string& text) {
    const bool thinking = conversation_.options().value("enable_thinking", true);
    const bool color = app_.color_stdout();
    std::string shown;
    bool dim = thinking && color;
    if (dim) std::fputs("\x1b[2m", stdout);
    const auto show = [&](const std::string& piece) {
      shown += piece;
      std::fputs(piece.c_str(), stdout);
      if (dim && shown.find("</think>") != std::string::npos) {
        dim = false;
        std::fputs("\x1b[0m", stdout);
      }
      std::fflush(stdout);
    };
    try {
      last_ = conversation_.ask(text, request_, show, [] { return InterruptGuard::requested(); });
    } catch (...) {
      if (dim) std::fputs("\x1b[0m", stdout);
      throw;
    }
    if (dim) std::fputs("\x1b[0m", stdout);
    std::fputs("\n", stdout);
    std::fflush(stdout);
    if (last_->result.finish != Finish::kStop) {
      fmt::print(stderr, "(ended: {})\n", finish_name(last_->result.finish));
    }
  }

  // False: leave.
  bool command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      fmt::print(stderr, "{}", kHelp);
    } else if (name == "/reset") {
      conversation_.reset();
    } else if (name == "/system") {
      conversation_.set_system(rest);
    } else if (name == "/think") {
      if (rest != "on" && rest != "off") {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "/think takes on or off");
      }
      conversation_.options()["enable_thinking"] = rest == "on";
    } else if (name == "/set") {
      set(rest);
    } else if (name == "/export" || name == "/import") {
      if (rest.empty()) throw Error(FRT_ERR_INVALID_ARGUMENT, name + " needs a file name");
      name == "/export" ? conversation_.export_to(rest) : conversation_.import_from(rest);
      fmt::print(stderr, "{} messages\n", conversation_.messages().size());
    } else if (name == "/save" || name == "/restore" || name == "/fork") {
      if (rest.empty()) throw Error(FRT_ERR_INVALID_ARGUMENT, name + " needs a name");
      if (name == "/restore") {
        restore(rest);
      } else if (name == "/fork") {
        conversation_.fork(rest);
        fmt::print(stderr, "in branch {}\n", rest);
      } else {
        registry_->require_folder();
        conversation_.save(rest, request_.sampling, false);
        fmt::print(stderr, "saved {}: {} tokens\n", rest, conversation_.session().journal().size());
      }
    } else if (name == "/back") {
      conversation_.back(turns(rest));
      fmt::print(stderr, "{} messages, {} tokens\n", conversation_.messages().size(),
                 conversation_.session().journal().size());
    } else if (name == "/branches") {
      for (const auto& branch : conversation_.branches()) {
        fmt::print(stderr, "{} {}: {} turns, {}\n", branch.current ? "*" : " ", branch.name,
                   branch.turns,
                   branch.tokens > 0 ? fmt::format("{} tokens", branch.tokens) : "no state");
      }
    } else if (name == "/stats") {
      stats();
    } else {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "unknown command " + name + "; /help lists them");
    }
    return true;
  }

  void restore(const std::string& name) {
    conversation_.restore(name);
    fmt::print(stderr, "restored {}: {} messages, {} tokens\n", name,
               conversation_.messages().size(), conversation_.session().journal().size());
  }

  static uint64_t turns(const std::string& text) {
    if (text.empty()) return 1;
    const auto value = core::parse_size(text);
    if (!value || *value < 1) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "/back takes a number of turns, found '" + text + "'");
    }
    return static_cast<uint64_t>(*value);
  }

  void set(const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
    SamplingChoice changed = choice();
    const auto number = [&](auto& target) {
      std::istringstream stream(value);
      typename std::remove_reference_t<decltype(target)>::value_type parsed{};
      if (!(stream >> parsed) || !stream.eof()) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "'" + value + "' is no value for " + name);
      }
      target = parsed;
    };
    const std::map<std::string, std::function<void()>> setters = {
        {"temperature", [&] { number(changed.temperature); }},
        {"top-k", [&] { number(changed.top_k); }},
        {"top-p", [&] { number(changed.top_p); }},
        {"min-p", [&] { number(changed.min_p); }},
        {"repetition-penalty", [&] { number(changed.repetition_penalty); }},
        {"presence-penalty", [&] { number(changed.presence_penalty); }},
        {"frequency-penalty", [&] { number(changed.frequency_penalty); }},
        {"seed", [&] { number(changed.seed); }},
        {"max-new", [&] {
           PromptOptions probe;
           probe.max_new = value;
           request_.max_new = probe.max_new_tokens();
         }}};
    const auto setter = setters.find(name);
    if (setter == setters.end()) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "nothing is called '" + name + "'; /help lists names");
    }
    setter->second();
    // Saying how to draw means to draw.
    if (name == "temperature" || name == "top-k" || name == "top-p" || name == "min-p") {
      changed.greedy = false;
    }
    request_.sampling = resolve_sampling(changed, defaults_);
    choice() = changed;
  }

  void stats() const {
    if (!last_) {
      fmt::print(stderr, "nothing was answered yet\n");
      return;
    }
    const GenerationResult& result = last_->result;
    fmt::print(stderr,
               "prompt {} tokens ({} reused) in {:.1f} ms; {} new tokens in {:.2f} s; finish: {}; "
               "seed {}\n{}\n",
               result.prompt_tokens, result.prefix.reused, result.prefill_seconds * 1e3,
               result.tokens.size(), result.decode_seconds, finish_name(result.finish),
               request_.sampling.seed, result.prefix.reason);
  }

  App& app_;
  ChatCommandOptions options_;
  LmModel model_;
  nlohmann::ordered_json defaults_;
  CapsuleSettings settings_;
  std::unique_ptr<CapsuleRegistry> registry_;
  Conversation conversation_;
  GenerationRequest request_;
  std::optional<Conversation::Turn> last_;
  bool failed_ = false;
};

}  // namespace

void add_chat_command(App& app) {
  auto options = std::make_shared<ChatCommandOptions>();
  options->generation.max_new = "2k";
  Command command = app.program().add_subcommand("chat", "Talk to a model");
  command.add_option("manifest", options->manifest, "The manifest (TOML)").required();
  command.add_option("--model", options->model, "Which model of the manifest").type_name("NAME");
  command.add_option("--system", options->system, "The system message");
  command.add_flag("--no-thinking", options->no_thinking, "Answer without reasoning");
  command.add_flag("--drop-thinking", options->drop_thinking,
                   "Leave earlier reasoning out of the prompt; it is read again then");
  command.add_option("--from-capsule", options->from_capsule, "Go on with a saved conversation")
      .type_name("NAME");
  options->generation.add_to(command);
  app.add_command(command, [&app, options] {
    LoadedModel loaded(app, options->manifest, options->model);
    return ChatSession(app, *options, loaded).run();
  });
}

}  // namespace frt::host
