// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "cli/number_text.hpp"
#include "cli/output.hpp"

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
  return Option(command_->add_flag(names, target, doc));
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
std::vector<Command> Command::subcommands() const {
  std::vector<Command> commands;
  for (CLI::App* command : command_->get_subcommands({})) commands.emplace_back(command);
  return commands;
}
std::vector<std::string> Command::long_options() const {
  std::vector<std::string> options;
  std::set<std::string> seen;
  for (const CLI::App* level = command_; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        if (seen.insert(name).second) options.push_back("--" + name);
      }
    }
  }
  return options;
}

CommandLine::CommandLine(const char* doc, std::string program)
    : parser_(std::make_unique<CLI::App>(doc, std::move(program))) {
  parser_->fallthrough();
  parser_->set_help_all_flag("--help-all", "Explain every command");
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
    put_err(err.str());
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
