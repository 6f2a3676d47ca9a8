// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <set>
#include <type_traits>
#include <utility>

namespace frt::host {
namespace {

template <class Target>
constexpr bool kUnsigned = std::is_unsigned_v<Target>;
template <class Value>
constexpr bool kUnsigned<std::optional<Value>> = kUnsigned<Value>;

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
Option Option::delimiter(char separator) {
  option_->delimiter(separator);
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
  option_->check(CLI::Range(least, most));
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
  if constexpr (kUnsigned<Target>) {
    // The library reads "-1" into an unsigned value as the largest one there is.
    static const CLI::Validator not_negative(
        [](std::string& text) {
          return text.starts_with('-') ? text + " is below 0" : std::string();
        },
        "");
    option->check(not_negative);
  }
  return Option(option);
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
    return parser_->exit(error) == 0 ? ExitCode::kOk : ExitCode::kUsage;
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
template Option Command::add_option(const char*, std::vector<int32_t>&, const char*);
template Option Command::add_option(const char*, std::optional<float>&, const char*);
template Option Command::add_option(const char*, std::optional<int32_t>&, const char*);
template Option Command::add_option(const char*, std::optional<uint64_t>&, const char*);

}  // namespace frt::host
