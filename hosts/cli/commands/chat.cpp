// SPDX-License-Identifier: Apache-2.0
// frt-host chat: a dialogue in the model's own format. The answer goes to stdout, everything else
// to stderr, so that a transcript can be piped. Ctrl-C stops an answer, or the reading of a prompt,
// not the program; a second one before that has stopped ends the talk.
//
// A mistake in a line ends nothing. Whatever else ends the program, short of /exit, the
// conversation of a person is kept: at the end of the input, at a signal, and when stdin or stdout
// fails. It is kept as a capsule where there is a folder for them, else as messages in the user's
// state folder. A script (stdin is no terminal) says itself what it wants kept, by --autosave,
// /save or /export: at the end of its input nothing else is. What ends it earlier keeps it, too.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <frt/core/config.hpp>
#include <frt/io/file.hpp>
#include <frt/io/utf8.hpp>
#include <map>
#include <memory>
#include <utility>

#include "cli/answer_view.hpp"
#include "cli/app.hpp"
#include "cli/load_model.hpp"
#include "cli/prompt_options.hpp"
#include "cli/terminal/line_reader.hpp"
#include "cli/terminal/memory_reserve.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/prompt_progress.hpp"
#include "cli/terminal/signals.hpp"
#include "cli/terminal/text.hpp"
#include "lm/chat/conversation.hpp"
#include "runtime/lm_settings.hpp"

namespace frt::host {
namespace {

struct ChatCommandOptions {
  std::string manifest, model, system, from_capsule;
  bool no_thinking = false;
  bool drop_thinking = false;
  bool allow_special_tokens = false;
  bool autosave = false;
  PromptOptions generation;
};

constexpr const char* kHelp = R"(/help                this text
/reset               forget the conversation, keep the system message
/system TEXT         set the system message; without TEXT: remove it
/think on|off        answer with or without reasoning
/set NAME=VALUE      temperature, top-k, top-p, min-p, repetition-penalty,
                     presence-penalty, frequency-penalty, seed (or random), max-new
/save NAME [--replace]  keep the conversation and the model's state on the disk
/restore NAME        go on with one, or with a branch
/fork NAME           start a branch here and go on in it
/back [N]            take the last turn back, or the last N
/branches            list them
/export FILE         write the messages as JSON
/import FILE         read what /export wrote
/stats               figures of the last answer
/exit                leave and keep nothing
End a line with \ to go on in the next, or put """ before and behind several lines. Tab completes
a command. Ctrl-C stops an answer, or the prefill of a prompt.
At the end of the input (Ctrl-D) the conversation is kept, as the capsule autosave or in a file.
)";

// To stderr. A terminal that is gone ends nothing: the conversation is still to be kept.
template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  put_err(fmt::format(format, std::forward<Arguments>(arguments)...));
}

constexpr std::string_view kQuotes = R"(""")";
constexpr std::string_view kReplace = " --replace";

const std::vector<std::string> kCommands = {
    "/help",  "/reset", "/system ",  "/think on", "/think off", "/set ",  "/save ", "/restore ",
    "/fork ", "/back",  "/branches", "/export ",  "/import ",   "/stats", "/exit"};
const std::vector<std::string> kSettings = {
    "temperature=",       "top-k=", "top-p=",  "min-p=", "repetition-penalty=", "presence-penalty=",
    "frequency-penalty=", "seed=",  "max-new="};

constexpr std::string_view kAutosave = "autosave";
constexpr int kMostNames = 1000;
// How long the end of the program waits for a step in flight.
constexpr std::chrono::seconds kStepTime{10};

bool is_autosave(std::string_view name) {
  if (!name.starts_with(kAutosave)) return false;
  name.remove_prefix(kAutosave.size());
  return name.empty() || (name.size() > 1 && name[0] == '-' &&
                          name.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

class ChatSession {
 public:
  ChatSession(App& app, const ChatCommandOptions& options, LoadedModel& loaded)
      : app_(app),
        options_(options),
        model_(loaded.language_model()),
        defaults_(model_.generation_defaults()),
        settings_(capsule_settings(loaded.runtime().manifest(), loaded.name())),
        registry_(open_capsules(app.log(), model_, settings_.capsules)),
        engine_(model_, registry_.get(), engine_options()),
        conversation_(model_, engine_,
                      {{"enable_thinking", !options.no_thinking},
                       {"preserve_thinking", !options.drop_thinking},
                       {"allow_special_tokens", options.allow_special_tokens}}) {
    if (!options.system.empty()) {
      stage(ExitCode::kUsage, [&] { conversation_.set_system(options.system); });
    }
    request_.sampling =
        stage(ExitCode::kUsage, [&] { return resolve_sampling(choice(), defaults_); });
    request_.max_new = options_.generation.max_new_tokens();
    if (!options_.generation.ignore_eos) request_.stop_ids = stop_token_ids(defaults_);
    if (!options.from_capsule.empty()) restore(options.from_capsule);
  }

  int run() {
    LineReader reader(state_file("chat_history"));
    reader.complete_with([this](std::string_view line) { return completions(line); });
    if (reader.interactive() && !app_.options().quiet) {
      say("Talk to {}. /help lists commands, Ctrl-D leaves.\n", model_.name());
    }
    const InterruptGuard interrupt(InterruptGuard::Again::kEnds);
    const EndAllowance step(kStepTime);
    std::signal(SIGPIPE, SIG_IGN);  // a reader that is gone shows as a failed write
    bool left = false;              // by /exit: whoever says so wants nothing kept
    try {
      while (!left && InterruptGuard::ending() == 0) {
        InterruptGuard::reset();
        fill_memory_reserve();
        if (!turn(reader, left)) break;
      }
    } catch (const std::exception& problem) {       // nothing can go on
      const int signal = InterruptGuard::ending();  // then a write was left for its sake
      if (signal == 0) tell(problem.what());
      const auto* error = dynamic_cast<const Error*>(&problem);
      const bool lost = error && error->status() == FRT_ERR_DEVICE_LOST;
      lost ? keep_messages() : keep();
      if (signal != 0) return 128 + signal;
      return static_cast<int>(lost ? ExitCode::kDevice : ExitCode::kFailed);
    }
    const bool keeps = reader.interactive() || options_.autosave;
    if (!left && (keeps || InterruptGuard::ending() != 0)) {
      keep();
    } else if (!left) {
      say_not_kept();
    }
    if (const int signal = InterruptGuard::ending(); signal != 0) return 128 + signal;
    // A person saw the error; a pipe needs the status.
    return static_cast<int>(failed_ && !reader.interactive() ? ExitCode::kFailed : ExitCode::kOk);
  }

 private:
  EngineOptions engine_options() const {
    EngineOptions options;
    options.slots = 1;
    options.session = settings_.session;
    return options;
  }

  bool has_folder() const { return !settings_.capsules.folder.empty(); }

  SamplingChoice& choice() { return options_.generation.sampling; }

  // One line of input and what it asks for. False: there is no more. What goes wrong is told and
  // ends nothing but what was asked for, unless nothing can be read, computed or shown any more:
  // that is thrown.
  bool turn(LineReader& reader, bool& left) {
    std::string text;
    bool is_message = false;
    try {
      switch (read_message(reader, text, is_message)) {
        case LineReader::Outcome::kEnd:
          return false;
        case LineReader::Outcome::kInterrupted:
          return true;
        case LineReader::Outcome::kLine:
          break;
      }
    } catch (const Error& error) {
      if (error.status() == FRT_ERR_IO) throw;
      return tell(error.what());
    }
    if (text.find_first_not_of(" \t\n") == std::string::npos) return true;
    try {
      if (text.front() == '/' && !is_message) {
        left = !command(text);
      } else {
        answer(text);
      }
      engine_.call([&](EngineAccess& access) { show_notices(app_.log(), *access.registry()); });
    } catch (const Error& error) {
      if (error.status() == FRT_ERR_DEVICE_LOST || !shown_) throw;
      return tell(error.what());
    } catch (const std::exception& error) {
      return tell(error.what());
    }
    return true;
  }

  bool tell(const char* what) {
    say("error: {}\n", io::printable(what, io::Keep::kLines));
    failed_ = true;
    return true;
  }

  // `is_message`: no command, whatever it begins with.
  static LineReader::Outcome read_message(LineReader& reader, std::string& text, bool& is_message) {
    LineReader::Outcome outcome = reader.read("> ", text);
    const auto read_more = [&] {
      if (text.size() > LineReader::kMostBytes) {
        throw Error(FRT_ERR_OUT_OF_RANGE, "the message is longer than " +
                                              std::to_string(LineReader::kMostBytes) +
                                              " bytes; send less at a time");
      }
      std::string more;
      outcome = reader.read(". ", more);
      if (outcome == LineReader::Outcome::kLine) text += more;
    };
    is_message = outcome == LineReader::Outcome::kLine && text.starts_with(kQuotes);
    if (is_message) {
      text.erase(0, kQuotes.size());
      while (outcome == LineReader::Outcome::kLine && !text.ends_with(kQuotes)) {
        text += '\n';
        read_more();
      }
      if (text.ends_with(kQuotes)) text.resize(text.size() - kQuotes.size());
      if (text.starts_with('\n')) text.erase(0, 1);
      if (text.ends_with('\n')) text.pop_back();
    }
    while (!is_message && outcome == LineReader::Outcome::kLine && text.ends_with('\\')) {
      text.back() = '\n';
      read_more();
    }
    // A message that the input's end cuts is asked as it stands.
    return outcome == LineReader::Outcome::kEnd && !text.empty() ? LineReader::Outcome::kLine
                                                                 : outcome;
  }

  // ---- answers ----

  void answer(const std::string& text) {
    AnswerView view(app_, model_, conversation_.options());
    PromptProgress progress(app_.draws_progress());
    // Without a seed that was asked for, every question is a draw of its own.
    request_.sampling = resolve_sampling(choice(), defaults_);
    GenerationReader reader;
    reader.on_prefill = progress.callback();
    reader.cancelled = [] { return InterruptGuard::requested(); };
    const auto show = [&](const std::string& piece) { return shown_ = view.push(piece); };
    try {
      last_ = conversation_.ask(text, request_, std::move(reader), show);
    } catch (...) {
      progress.finish();
      throw;
    }
    progress.finish();
    const GenerationResult& result = last_->result;
    const bool answered = !last_->message.is_null();
    if (answered) shown_ = view.finish();
    if (!shown_) throw Error(FRT_ERR_IO, "cannot write to the standard output");
    if (result.prompt_read < result.prompt_tokens) {
      say("(stopped: {} of {} tokens of the prompt were read; nothing was asked)\n",
          result.prompt_read, result.prompt_tokens);
    } else if (result.finish != Finish::kStop) {
      say("(ended: {}{})\n", finish_name(result.finish), answered ? "" : "; nothing was asked");
    }
  }

  // ---- the end ----

  // Keeps every branch with answers that no file holds, as a capsule where there is a folder.
  void keep() {
    const EndAllowance files(kKeepTime);
    if (!has_folder()) return keep_messages();
    for (const Conversation::BranchView& branch : conversation_.branches()) {
      if (!branch.unsaved) continue;
      try {
        conversation_.restore(branch.name);
        const std::string name = keep_as_capsule(branch.file);
        if (app_.options().quiet) continue;
        say("kept as {}: {} turns; --from-capsule {} continues it\n", name, branch.turns, name);
      } catch (const std::exception& error) {
        tell(error.what());
        keep_messages();
        return;
      }
    }
  }

  // At the end of a script.
  void say_not_kept() {
    if (app_.options().quiet) return;
    for (const Conversation::BranchView& branch : conversation_.branches()) {
      if (!branch.unsaved) continue;
      say("not kept: {} turns of the conversation; give --autosave, or end the input with {}\n",
          branch.turns, has_folder() ? "/save NAME or /export FILE" : "/export FILE");
    }
  }

  // Under the name that the talk was kept under before, or a new one: what else is there stays, as
  // what another talk made of the same capsule. Who replaces one is alone with the folder, so that
  // no other talk replaces it between the look and the writing; who cannot be takes a new name.
  std::string keep_as_capsule(const std::string& before) {
    const io::Descriptor folder(
        open(settings_.capsules.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const bool alone = flock(folder.get(), LOCK_EX | LOCK_NB) == 0;
    if (alone && is_autosave(before) && conversation_.owns_file()) {
      conversation_.save(before, request_.sampling, true);
      return before;
    }
    for (int i = 1;; ++i) {
      const std::string name = i == 1 ? std::string(kAutosave) : fmt::format("{}-{}", kAutosave, i);
      if (has_capsule(name)) continue;
      try {
        conversation_.save(name, request_.sampling, false);
        return name;
      } catch (const Error& error) {
        if (error.status() != FRT_ERR_EXISTS || i == kMostNames) throw;
      }
    }
  }

  bool has_capsule(const std::string& name) {
    bool has = false;
    engine_.call([&](EngineAccess& access) { has = access.registry()->has(name); });
    return has;
  }

  // Without the model's state: where it is lost, or cannot be written.
  void keep_messages() {
    const EndAllowance files(kKeepTime);
    for (const Conversation::BranchView& branch : conversation_.branches()) {
      if (!branch.unsaved) continue;
      const std::string file = state_file(
          fmt::format("chat-{}-{}-{}.json", time_text(unix_seconds()), getpid(), ++files_));
      try {
        if (file.empty()) throw Error(FRT_ERR_NOT_FOUND, "there is no home folder");
        conversation_.export_branch(branch.name, file, io::Rights::kOwner);
        say("the messages are in {}; /import reads them\n", file);
      } catch (const std::exception& error) {
        tell(error.what());
      }
    }
  }

  // ---- commands ----

  // False: leave.
  bool command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      put_err(kHelp);
    } else if (name == "/reset") {
      conversation_.reset();
    } else if (name == "/system") {
      conversation_.set_system(rest);
    } else if (name == "/think") {
      if (rest != "on" && rest != "off") {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "/think takes on or off");
      }
      conversation_.set_thinking(rest == "on");
    } else if (name == "/set") {
      set(rest);
    } else if (name == "/export" || name == "/import") {
      if (rest.empty()) throw Error(FRT_ERR_INVALID_ARGUMENT, name + " needs a file name");
      if (name == "/export") {
        conversation_.export_to(rest);
      } else {
        say_moved(conversation_.import_from(rest));
      }
      say("{} messages\n", conversation_.messages().size());
    } else if (name == "/save" || name == "/restore" || name == "/fork") {
      if (rest.empty()) throw Error(FRT_ERR_INVALID_ARGUMENT, name + " needs a name");
      if (name == "/restore") {
        restore(rest);
      } else if (name == "/fork") {
        conversation_.fork(rest);
        say("in branch {}\n", io::printable(rest));
      } else {
        engine_.call([](EngineAccess& access) { access.registry()->require_folder(); });
        const bool replace = rest.ends_with(kReplace);
        const std::string file = rest.substr(0, rest.size() - (replace ? kReplace.size() : 0));
        conversation_.save(file, request_.sampling, replace);
        say("saved {}: {} tokens\n", file, conversation_.tokens());
      }
    } else if (name == "/back") {
      conversation_.back(turns(rest));
      say("{} messages, {} tokens\n", conversation_.messages().size(), conversation_.tokens());
    } else if (name == "/branches") {
      for (const auto& branch : conversation_.branches()) {
        say("{} {}: {} turns, {}\n", branch.current ? "*" : " ", io::printable(branch.name),
            branch.turns, branch.tokens > 0 ? fmt::format("{} tokens", branch.tokens) : "no state");
      }
    } else if (name == "/stats") {
      stats();
    } else {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "unknown command " + name + "; /help lists them");
    }
    return true;
  }

  void restore(const std::string& name) {
    say_moved(conversation_.restore(name));
    say("restored {}: {} messages, {} tokens\n", name, conversation_.messages().size(),
        conversation_.tokens());
  }

  // Where answers are that nothing else holds.
  static void say_moved(const std::string& branch) {
    if (branch.empty()) return;
    const std::string name = io::printable(branch);
    say("what was not saved is in branch {} now; /restore {} returns to it\n", name, name);
  }

  // What a line that begins with a slash may become.
  std::vector<std::string> completions(std::string_view line) const {
    if (line.empty() || line.front() != '/') return {};
    std::vector<std::string> lines = kCommands;
    for (const std::string& name : kSettings) lines.push_back("/set " + name);
    for (const Conversation::BranchView& branch : conversation_.branches()) {
      lines.push_back("/restore " + branch.name);
    }
    if (line.find(' ') != line.npos)
      std::erase_if(lines, [](auto& each) { return each.ends_with(' '); });
    return lines;
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
    uint64_t max_new = request_.max_new;
    const auto number = [&](auto& target) {
      typename std::remove_reference_t<decltype(target)>::value_type parsed{};
      const char* end = value.data() + value.size();
      const auto [rest, problem] = std::from_chars(value.data(), end, parsed);
      if (value.empty() || rest != end || problem != std::errc()) {
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
        {"seed",
         [&] {
           changed.seed.reset();
           if (value != "random") number(changed.seed);
         }},
        {"max-new", [&] {
           PromptOptions probe;
           probe.max_new = value;
           max_new = probe.max_new_tokens();
         }}};
    const auto setter = setters.find(name);
    if (setter == setters.end()) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "there is no setting '" + name + "'; /help lists them");
    }
    setter->second();
    // Saying how to draw means to draw.
    if (name == "temperature" || name == "top-k" || name == "top-p" || name == "min-p") {
      changed.greedy = false;
    }
    request_.sampling = resolve_sampling(changed, defaults_);
    request_.max_new = max_new;
    choice() = changed;
  }

  void stats() const {
    if (!last_) {
      say("nothing was answered yet\n");
      return;
    }
    const GenerationResult& result = last_->result;
    say("prompt {} tokens ({} reused) in {:.1f} ms; {} new tokens in {:.2f} s; finish: {}; "
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
  Engine engine_;  // uses the registry from now on, on its own thread
  Conversation conversation_;
  EngineRequest request_;
  std::optional<Conversation::Turn> last_;
  bool failed_ = false;
  bool shown_ = true;  // everything that was to be shown
  int files_ = 0;      // that messages were kept in
};

}  // namespace

void add_chat_command(App& app) {
  auto options = std::make_shared<ChatCommandOptions>();
  options->generation.max_new = "2k";
  Command command = app.program().add_subcommand("chat", "Talk to a model");
  command.add_option("manifest", options->manifest, kManifestDoc).required();
  command.add_option("--model", options->model, kModelDoc).type_name("NAME");
  Option system = command.add_option("--system", options->system, "Set the system message");
  command.add_flag("--no-thinking", options->no_thinking, "Answer without reasoning");
  command.add_flag("--drop-thinking", options->drop_thinking,
                   "Leave earlier reasoning out of the prompt; this costs a second prefill");
  command.add_flag("--allow-special-tokens", options->allow_special_tokens,
                   "Read <|im_end|> and its like in messages as control tokens");
  command.add_option("--from-capsule", options->from_capsule, "Continue a saved conversation")
      .type_name("NAME")
      .excludes(system);  // it has its own; /system changes it
  command.add_flag("--autosave", options->autosave,
                   "Keep the conversation also when piped input ends");
  options->generation.add_to(command);
  command.examples({"chat share/frt/manifests/demo.toml",
                    "chat checkpoints/my-model --set model.main.options.slots=1",
                    "chat my.toml --no-thinking --from-capsule autosave"},
                   "/help lists what a line may say.");
  app.add_command(command, [&app, options] {
    LoadedModel loaded = load_model(app, options->manifest, options->model);
    return static_cast<ExitCode>(ChatSession(app, *options, loaded).run());
  });
}

}  // namespace frt::host
