// SPDX-License-Identifier: Apache-2.0
// command_line.hpp - commands and their options as the files of the commands see them. The library
// behind, CLI11, is known to command_line.cpp alone: compiling its headers takes a core 20 seconds.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/exit_code.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace frt::host {

// An option of a command. What changes it returns it again.
class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  Option capture_default_str();        // help shows the value it has now
  Option type_name(const char* name);  // help shows this for the value
  Option envname(const char* name);    // read from there if it is not given
  Option one_each();                   // may be repeated, each time with one value
  Option excludes(Option other);       // not both
  Option needs(Option other);          // only with that one
  Option one_of(std::vector<std::string> values);
  Option existing_file();
  Option existing_folder();
  template <class Number>
  Option range(Number least, Number most);
  // `parse` throws frt::Error for a value that is wrong.
  Option check(std::function<void(const std::string& text)> parse);

  bool given() const;
  std::vector<std::string> long_names() const;  // "--json"; empty: it has none but a position
  bool takes_value() const;                     // a flag takes none
  std::vector<std::string> values() const;      // those of one_of(); empty: others
  // What stands for its value in the help: "FILE"; of a flag, nothing.
  std::string value_name() const;
  std::string doc() const;  // what the help says of it

 private:
  CLI::Option* option_ = nullptr;
};

// A command, or the program itself. The targets of options must live as long as it does.
class Command {
 public:
  explicit Command(CLI::App* command) : command_(command) {}

  // Its help ends as this one's, until it says something else.
  Command add_subcommand(const char* name, const char* doc);
  void require_subcommand();
  // `target` is a string, a vector of strings, or a number or std::optional of one. Numbers are
  // read strictly (number_text.hpp).
  template <class Target>
  Option add_option(const char* names, Target& target, const char* doc);
  // Numbers with commas between them.
  Option add_id_list(const char* names, std::vector<int32_t>& target, const char* doc);
  // Takes no value; from the environment true, false, 1 or 0.
  Option add_flag(const char* names, bool& target, const char* doc);
  // Command lines that its help shows, each with what is behind "frt-host", then `more`.
  void examples(std::initializer_list<const char*> lines, const char* more = "");
  void footer(const char* text);
  // What is called when the command line names this command.
  void callback(std::function<void()> chosen);

  bool parsed() const;  // the command line named it
  std::string name() const;
  std::string doc() const;  // what the help says of it
  std::vector<Command> subcommands() const;
  // In the order of the help, then those of the commands above, which may be given here, too.
  std::vector<Option> options() const;

 private:
  CLI::App* command_;
};

class CommandLine {
 public:
  CommandLine(const char* doc, std::string program);
  ~CommandLine();

  Command program() noexcept { return Command(parser_.get()); }
  // Parses and calls back. An exit status if there is nothing more to do: what the user asked for
  // (help) or did wrong is printed.
  std::optional<ExitCode> parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> parser_;
};

}  // namespace frt::host
