// SPDX-License-Identifier: Apache-2.0
// frt-host completion: a script for bash, zsh or fish, generated from the option table, so that it
// cannot fall behind. The program's own words are completed: commands, options, the values of those
// that take one of a few, ids of plugins; file names are left to the shell.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "cli/app.hpp"
#include "cli/terminal/output.hpp"

namespace frt::host {
namespace {

// What may follow each command, "" being the program itself.
struct Words {
  std::vector<std::string> commands;
  std::vector<Option> options;  // those with a position, too
};
using Tree = std::map<std::string, Words>;

// The value of such an option is the id of a plugin, which the program is asked for.
constexpr const char* kPluginId = "PLUGIN";
constexpr const char* kListIds = "frt-host -q plugins ls --ids 2>/dev/null";

void collect(const Command& command, const std::string& path, Tree& tree) {
  Words& words = tree[path];
  words.options = command.options();
  for (const Command& child : command.subcommands()) {
    words.commands.push_back(child.name());
    collect(child, path.empty() ? child.name() : path + " " + child.name(), tree);
  }
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// The shell's text for what the value of an option may be; empty: anything, a file for example.
std::string values_of(const Option& option) {
  return option.value_name() == kPluginId ? fmt::format("$({})", kListIds)
                                          : joined(option.values());
}

// "'run --seed') values=... ;;" of each option that takes a value: without values there are files.
std::string bash_values(const std::string& path, const Words& words) {
  std::string cases;
  for (const Option& option : words.options) {
    if (!option.takes_value()) continue;
    for (const std::string& name : option.long_names()) {
      cases +=
          fmt::format("    '{} {}') given=1 values=\"{}\" ;;\n", path, name, values_of(option));
    }
  }
  return cases;
}

std::string bash_script(const Tree& tree) {
  std::string paths, cases, values;
  for (const auto& [path, words] : tree) {
    if (!path.empty()) paths += fmt::format("      '{0}') path='{0}' ;;\n", path);
    std::vector<std::string> options;
    std::string first;  // what may stand where there is no option's name
    for (const Option& option : words.options) {
      const std::vector<std::string> names = option.long_names();
      options.insert(options.end(), names.begin(), names.end());
      if (names.empty() && first.empty()) first = values_of(option);
    }
    cases += fmt::format("    '{}') commands='{}' options='{}' first=\"{}\" ;;\n", path,
                         joined(words.commands), joined(options), first);
    values += bash_values(path, words);
  }
  return fmt::format(R"(# bash completion of frt-host: source <(frt-host completion bash)
_frt_host() {{
  local path='' word commands options first values given i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    case "${{path:+$path }}$word" in
{}    esac
  done
  word=${{COMP_WORDS[COMP_CWORD]}}
  case "$path ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{}  esac
  case $path in
{}  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  elif [[ -n $given ]]; then
    COMPREPLY=($(compgen -f -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ -n $commands$first ]]; then
    COMPREPLY=($(compgen -W "$commands $first" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _frt_host frt-host
)",
                     paths, values, cases);
}

std::string zsh_script(const Tree& tree) {
  return "#compdef frt-host\n# zsh completion of frt-host: source <(frt-host completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script(tree);
}

std::string fish_script(const Tree& tree) {
  std::string script = "# fish completion of frt-host: frt-host completion fish | source\n";
  for (const auto& [path, words] : tree) {
    const std::size_t space = path.find(' ');
    const std::string last = space == std::string::npos ? path : path.substr(space + 1);
    std::string condition = "__fish_use_subcommand";
    if (!path.empty()) {
      condition = "__fish_seen_subcommand_from " + path.substr(0, space);
      if (space != std::string::npos) condition += "; and __fish_seen_subcommand_from " + last;
    }
    for (const std::string& command : words.commands) {
      script += fmt::format("complete -c frt-host -n '{}' -f -a '{}'\n", condition, command);
    }
    for (const Option& option : words.options) {
      const std::string values = values_of(option);
      const std::string given = values.empty() ? "" : fmt::format(" -x -a \"{}\"", values);
      const std::vector<std::string> names = option.long_names();
      if (names.empty() && !values.empty()) {
        script += fmt::format("complete -c frt-host -n '{}'{}\n", condition, given);
      }
      for (const std::string& name : names) {
        script += fmt::format("complete -c frt-host -n '{}' -l '{}'{}{}\n", condition,
                              name.substr(2), option.takes_value() ? " -r" : "", given);
      }
    }
  }
  return script;
}

}  // namespace

void add_completion_command(App& app) {
  auto shell = std::make_shared<std::string>();
  Command command = app.program().add_subcommand("completion", "Print a completion script");
  command.add_option("shell", *shell, "Choose the shell: bash, zsh or fish")
      .required()
      .one_of({"bash", "zsh", "fish"});
  command.examples({"completion bash    # source <(frt-host completion bash)"});
  app.add_command(command, [&app, shell] {
    Tree tree;
    collect(app.program(), "", tree);
    print_out("{}", *shell == "bash"  ? bash_script(tree)
                    : *shell == "zsh" ? zsh_script(tree)
                                      : fish_script(tree));
    return ExitCode::kOk;
  });
}

}  // namespace frt::host
