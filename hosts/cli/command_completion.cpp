// SPDX-License-Identifier: Apache-2.0
// frt-host completion: a script for bash, zsh or fish, generated from the option table, so that it
// cannot fall behind. The program's own words are completed; file names are left to the shell.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "cli/app.hpp"
#include "cli/output.hpp"

namespace frt::host {
namespace {

// What may follow each command, "" being the program itself: subcommands, then options.
struct Words {
  std::vector<std::string> commands, options;
};
using Tree = std::map<std::string, Words>;

void collect(const Command& command, const std::string& path, Tree& tree) {
  Words& words = tree[path];
  words.options = command.long_options();
  for (const Command& child : command.subcommands()) {
    words.commands.push_back(child.name());
    collect(child, path.empty() ? child.name() : path + " " + child.name(), tree);
  }
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string bash_script(const Tree& tree) {
  std::string cases;
  for (const auto& [path, words] : tree) {
    cases += fmt::format("    '{}') commands='{}' options='{}' ;;\n", path, joined(words.commands),
                         joined(words.options));
  }
  return fmt::format(R"(# bash completion of frt-host: source <(frt-host completion bash)
_frt_host() {{
  local path='' word commands options i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    case "${{path:+$path }}$word" in
{}    esac
  done
  case $path in
{}  esac
  if [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  elif [[ -n $commands ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  else
    COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
  fi
}}
complete -o filenames -F _frt_host frt-host
)",
                     [&] {
                       std::string paths;
                       for (const auto& [path, words] : tree) {
                         if (!path.empty()) {
                           paths += fmt::format("      '{0}') path='{0}' ;;\n", path);
                         }
                       }
                       return paths;
                     }(),
                     cases);
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
    for (const std::string& option : words.options) {
      script += fmt::format("complete -c frt-host -n '{}' -l '{}'\n", condition, option.substr(2));
    }
  }
  return script;
}

}  // namespace

void add_completion_command(App& app) {
  auto shell = std::make_shared<std::string>();
  Command command = app.program().add_subcommand("completion", "Print a completion script");
  command.add_option("shell", *shell, "bash, zsh or fish")
      .required()
      .one_of({"bash", "zsh", "fish"});
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
