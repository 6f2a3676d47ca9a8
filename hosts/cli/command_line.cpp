// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <frt/core/diagnostic.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "cli/terminal/number_text.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/version_text.hpp"

namespace frt::host {
namespace {

// The number that an option is, or whose std::optional it is; void for text.
template <class Target>
struct NumberOf {
  using type = std::conditional_t<std::is_arithmetic_v<Target>, Target, void>;
};
template <class Value>
struct NumberOf<std::optional<Value>> : NumberOf<Value> {};

// The library wraps what is too large, reads "-1" into an unsigned value as the largest one there
// is, takes 0x10 and 1'000, and drops what is empty between two commas. So numbers are read here,
// and reach it as text that it can only read right.
template <class Number>
CLI::Validator strict(Number least = std::numeric_limits<Number>::lowest(),
                      Number most = std::numeric_limits<Number>::max()) {
  return {[=](std::string& text) {
            Number value{};
            return read_number(text, value, least, most);
          },
          ""};
}

// The option of `level`, or of a command above it, that `word` names; null: there is none.
const CLI::Option* find_option(const CLI::App* level, const std::string& word) {
  for (; level != nullptr; level = level->get_parent()) {
    if (const CLI::Option* option = level->get_option_no_throw(word)) return option;
  }
  return nullptr;
}

// Those of `level` and of the commands above it; of two with one name the nearer.
std::vector<CLI::Option*> options_of(CLI::App* level) {
  std::vector<CLI::Option*> options;
  std::set<std::string> seen;
  bool own = true;
  for (; level != nullptr; level = level->get_parent(), own = false) {
    for (CLI::Option* option : level->get_options()) {
      const std::string name = option->get_name();
      if ((own || !option->get_positional()) && seen.insert(name).second) options.push_back(option);
    }
  }
  return options;
}

std::vector<std::string> long_names_of(CLI::App* level) {
  std::vector<std::string> names;
  for (CLI::Option* option : options_of(level)) {
    for (std::string& name : Option(option).long_names()) names.push_back(std::move(name));
  }
  return names;
}

// The library reads "1x" as a number, and counts "--flag=5" as five times the flag.
std::string flag_problem(const std::string& text) {
  static const std::set<std::string> kValues = {"true", "false", "1", "0"};
  return kValues.contains(text) ? "" : "'" + text + "' is neither true nor false";
}

bool takes_positionals(const CLI::App& level) {
  const auto options = level.get_options();
  return std::any_of(options.begin(), options.end(),
                     [](const CLI::Option* option) { return option->get_positional(); });
}

// What the library says of `--json=1`, in plain words; other texts as they are.
std::string in_plain_words(const std::string& text) {
  const std::size_t end = text.find(" was given a disallowed flag override");
  if (end == std::string::npos) return text;
  const std::string dashes = end == 1 ? "-" : "--";
  return dashes + text.substr(0, end) + " takes no value; leave out '=' and the text after it";
}

std::string path_of(const CLI::App* level) {
  const CLI::App* parent = level->get_parent();
  return parent ? path_of(parent) + " " + level->get_name() : level->get_name();
}

std::string unknown(const char* what, const std::string& word, const CLI::App& level,
                    const std::vector<std::string>& known) {
  std::string advice = core::did_you_mean(word, known);
  if (advice.empty()) advice = "`" + path_of(&level) + " --help` lists them";
  return std::string("unknown ") + what + " `" + word + "`; " + advice + "\n";
}

// The first word of the command line that is neither a command nor an option, and what it was
// probably meant to be; empty: there is none. The library names such a word late or not at all.
std::string unknown_word(CLI::App& program, int argc, char** argv) {
  CLI::App* level = &program;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") return {};
    if (word.size() > 1 && word.front() == '-') {
      const bool is_long = word[1] == '-';
      const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
      const CLI::Option* option = find_option(level, name);
      if (!option && is_long) {
        return unknown("option", name, *level, long_names_of(level));
      }
      // Its value is the next word, unless it is part of this one.
      if (option && option->get_items_expected_min() > 0 && name == word) ++i;
      continue;
    }
    const auto commands = level->get_subcommands([](CLI::App*) { return true; });
    const auto named = std::find_if(commands.begin(), commands.end(), [&](const CLI::App* command) {
      return command->get_name() == word;
    });
    if (named != commands.end()) {
      level = *named;
    } else if (!commands.empty() && !takes_positionals(*level)) {
      std::vector<std::string> names;
      for (const CLI::App* command : commands) names.push_back(command->get_name());
      return unknown("command", word, *level, names);
    }
  }
  return {};
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}
Option Option::capture_default_str() {
  option_->capture_default_str();
  return *this;
}
Option Option::type_name(const char* name) {
  option_->type_name(name);
  return *this;
}
Option Option::envname(const char* name) {
  option_->envname(name);
  return *this;
}
Option Option::one_each() {
  option_->allow_extra_args(false);
  return *this;
}
Option Option::excludes(Option other) {
  option_->excludes(other.option_);
  return *this;
}
Option Option::needs(Option other) {
  option_->needs(other.option_);
  return *this;
}
Option Option::one_of(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}
Option Option::existing_file() {
  option_->check(CLI::ExistingFile);
  return *this;
}
Option Option::existing_folder() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}
template <class Number>
Option Option::range(Number least, Number most) {
  CLI::Validator check = strict(least, most);
  check.description(CLI::Range(least, most).get_description());  // for the help
  option_->check(check);
  return *this;
}
Option Option::check(std::function<void(const std::string& text)> parse) {
  const auto problem = [parse = std::move(parse)](std::string& text) -> std::string {
    try {
      parse(text);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  option_->check(CLI::Validator(problem, ""));
  return *this;
}
bool Option::given() const {
  return option_->count() > 0;
}
std::vector<std::string> Option::long_names() const {
  std::vector<std::string> names;
  for (const std::string& name : option_->get_lnames()) names.push_back("--" + name);
  return names;
}
bool Option::takes_value() const {
  return option_->get_items_expected_max() > 0;
}
// The library keeps what a check wants as a part of the value's name in the help: "TEXT:{a,b}".
std::vector<std::string> Option::values() const {
  const std::string name = option_->get_type_name();
  const std::size_t begin = name.find(":{");
  if (begin == std::string::npos || name.back() != '}') return {};
  return CLI::detail::split(name.substr(begin + 2, name.size() - begin - 3), ',');
}
std::string Option::value_name() const {
  const std::string name = option_->get_type_name();
  return takes_value() ? name.substr(0, name.find(':')) : std::string();
}

std::string Option::doc() const {
  return option_->get_description();
}

Command Command::add_subcommand(const char* name, const char* doc) {
  return Command(command_->add_subcommand(name, doc));
}
void Command::require_subcommand() {
  command_->require_subcommand(1);
}
template <class Target>
Option Command::add_option(const char* names, Target& target, const char* doc) {
  CLI::Option* option = command_->add_option(names, target, doc);
  using Number = typename NumberOf<Target>::type;
  if constexpr (!std::is_void_v<Number>) option->check(strict<Number>());
  return Option(option);
}
Option Command::add_id_list(const char* names, std::vector<int32_t>& target, const char* doc) {
  const auto read = [&target, name = std::string(names)](const std::vector<std::string>& lists) {
    target.clear();
    for (const std::string& list : lists) {
      for (std::size_t at = 0; at <= list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        std::string problem = read_number(list.substr(at, end - at), target.emplace_back());
        if (!problem.empty()) throw CLI::ValidationError(name, problem);
        at = end + 1;
      }
    }
  };
  return Option(command_->add_option_function<std::vector<std::string>>(names, read, doc));
}
Option Command::add_flag(const char* names, bool& target, const char* doc) {
  CLI::Option* flag = command_->add_flag(names, target, doc)->disable_flag_override();
  flag->check(CLI::Validator([](std::string& text) { return flag_problem(text); }, ""));
  return Option(flag);
}
void Command::examples(std::initializer_list<const char*> lines, const char* more) {
  std::string text = lines.size() == 1 ? "Example:\n" : "Examples:\n";
  for (const char* line : lines) text += std::string("  frt-host ") + line + "\n";
  text += *more != '\0' ? std::string("\n") + more : "";
  while (text.back() == '\n') text.pop_back();
  command_->footer(text);
}
void Command::footer(const char* text) {
  command_->footer(text);
}
void Command::callback(std::function<void()> chosen) {
  command_->callback(std::move(chosen));
}
bool Command::parsed() const {
  return command_->parsed();
}
std::string Command::name() const {
  return command_->get_name();
}
std::string Command::doc() const {
  return command_->get_description();
}
std::vector<Command> Command::subcommands() const {
  std::vector<Command> commands;
  for (CLI::App* command : command_->get_subcommands({})) commands.emplace_back(command);
  return commands;
}
std::vector<Option> Command::options() const {
  std::vector<Option> options;
  for (CLI::Option* option : options_of(command_)) options.emplace_back(option);
  return options;
}

CommandLine::CommandLine(const char* doc, std::string program)
    : parser_(std::make_unique<CLI::App>(doc, std::move(program))) {
  parser_->fallthrough();
  parser_->set_help_all_flag("--help-all", "Explain every command");
  parser_->set_version_flag("--version", version_text, "Print the version of this program");
}
CommandLine::~CommandLine() = default;

std::optional<ExitCode> CommandLine::parse(int argc, char** argv) {
  try {
    parser_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    // Help is an "error" with status 0 that prints to stdout.
    std::ostringstream out, err;
    const int status = parser_->exit(error, out, err);
    put_out(out.str());
    const std::string word = status == 0 ? "" : unknown_word(*parser_, argc, argv);
    const std::string problem = word.empty() ? in_plain_words(err.str()) : word;
    if (status != 0) put_error(problem.substr(0, problem.find_last_not_of('\n') + 1));
    return status == 0 ? ExitCode::kOk : ExitCode::kUsage;
  }
}

// What the commands use.
template Option Option::range(int, int);
template Option Option::range(uint32_t, uint32_t);
template Option Option::range(uint64_t, uint64_t);
template Option Option::range(double, double);
template Option Command::add_option(const char*, std::string&, const char*);
template Option Command::add_option(const char*, uint32_t&, const char*);
template Option Command::add_option(const char*, uint64_t&, const char*);
template Option Command::add_option(const char*, int&, const char*);
template Option Command::add_option(const char*, double&, const char*);
template Option Command::add_option(const char*, std::vector<std::string>&, const char*);
template Option Command::add_option(const char*, std::optional<float>&, const char*);
template Option Command::add_option(const char*, std::optional<int32_t>&, const char*);
template Option Command::add_option(const char*, std::optional<uint64_t>&, const char*);

}  // namespace frt::host
