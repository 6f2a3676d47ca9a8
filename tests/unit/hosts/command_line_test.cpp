// SPDX-License-Identifier: Apache-2.0
// Every option of every command that takes a number takes nothing but a number: found by walking
// the program's own table, so that a new option is covered when it is added.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cli/app.hpp"

using namespace frt::host;

namespace {

// Options whose value is text (--beta has a reader of its own, robot/guidance.hpp): "--name" for
// all commands, "command --name" for one.
const std::set<std::string> kText = {
    "--ca-file",      "--chat",   "--color",      "--compare",       "--environment",
    "--file",         "--folder", "--frames",     "--from-capsule",  "--goldens",
    "--key-file",     "--listen", "--lock",       "--log-format",    "--log-level",
    "--manifest",     "--model",  "--out",        "--output",        "--picture",
    "--planner",      "--plot",   "--plugin-dir", "--prompt-file",   "--record",
    "--save-capsule", "--set",    "--stop",       "--system",        "--beta",
    "--url",          "--tag",    "run --prompt", "handoff --prompt"};

// Lists of ids and of strengths, and ranges, are strict about their parts and their commas.
const std::vector<std::string> kNoNumber = {"x",     "1x",   "1 ",    " 1",           "+1",  "0x10",
                                            "1'000", "1,,2", "1,",    ",1",           "1;2", "--1",
                                            "nan",   "inf",  "1e999", "1:99999999999"};

// What a program with all commands answers on stderr.
std::string answer(const std::vector<std::string>& arguments) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  App app("frt-host");
  add_commands(app);
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), "frt-host");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const int status = app.run(static_cast<int>(argv.size()), argv.data());
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  CHECK(status == static_cast<int>(ExitCode::kUsage));
  return text;
}

using Path = std::vector<std::string>;

template <class Visit>
void walk(const Command& command, const Path& path, const Visit& visit) {
  visit(command, path);
  for (const Command& child : command.subcommands()) {
    Path below = path;
    below.push_back(child.name());
    walk(child, below, visit);
  }
}

std::string joined(const Path& path) {
  std::string text;
  for (const std::string& word : path) text += word + " ";
  return text;
}

}  // namespace

TEST_CASE("every option of every command is known as text or takes numbers alone") {
  App app("frt-host");
  add_commands(app);
  std::size_t numbers = 0;
  walk(app.program(), {}, [&](const Command& command, const Path& path) {
    for (const Option& given : command.options()) {
      for (const std::string& option : given.long_names()) {
        if (!given.takes_value()) continue;
        if (kText.contains(option) || kText.contains(joined(path) + option)) continue;
        ++numbers;
        for (const std::string& value : kNoNumber) {
          Path arguments = path;
          arguments.push_back(option + "=" + value);
          const std::string text = answer(arguments);
          INFO(joined(path), option, "=", value, ": ", text);
          CHECK(text.find(option + ": ") != std::string::npos);  // and not what else is missing
        }
      }
    }
  });
  CHECK(numbers > 40);
}

TEST_CASE("a flag takes no value") {
  App app("frt-host");
  add_commands(app);
  std::set<std::string> flags;
  walk(app.program(), {}, [&](const Command& command, const Path& path) {
    for (const Option& given : command.options()) {
      for (const std::string& flag : given.long_names()) {
        const bool shows = flag.starts_with("--help") || flag == "--version";
        if (given.takes_value() || shows || !flags.insert(flag).second) continue;
        for (const char* value : {"1x", "2", "false", "yes"}) {
          Path arguments = path;
          arguments.push_back(flag + "=" + value);
          const std::string text = answer(arguments);
          INFO(joined(path), flag, "=", value, ": ", text);
          CHECK(text.find(flag + " takes no value") != std::string::npos);
        }
      }
    }
  });
  CHECK(flags.size() > 15);
  ::setenv("FRT_QUIET", "1x", 1);
  CHECK(answer({"completion", "bash"}).find("'1x' is neither true nor false") != std::string::npos);
  ::unsetenv("FRT_QUIET");
}

TEST_CASE("what is no command and no option is named, with what it was probably meant to be") {
  const auto says = [](const Path& arguments, const std::string& words) {
    const std::string text = answer(arguments);
    INFO(text);
    CHECK(text.find(words) != std::string::npos);
  };
  says({"serv"}, "unknown command `serv`; did you mean `serve`?");
  says({"--quiet", "confg", "check", "x"}, "unknown command `confg`; did you mean `config`?");
  says({"config", "chek", "x.toml"}, "unknown command `chek`; did you mean `check`?");
  says({"--color", "off", "--lock", "serve", "rnu"}, "unknown command `rnu`; did you mean `run`?");
  says({"nonsense"}, "unknown command `nonsense`; `frt-host --help` lists them");
  says({"capsule", "xyzzy"}, "unknown command `xyzzy`; `frt-host capsule --help` lists them");
  says({"run", "m.toml", "--promt", "x"}, "unknown option `--promt`; did you mean `--prompt`?");
  says({"run", "m.toml", "--promt=x"}, "unknown option `--promt`; did you mean `--prompt`?");
  says({"bench", "policy", "m.toml", "--vews", "2"}, "did you mean `--views`?");
  says({"run", "m.toml", "--quite"}, "unknown option `--quite`; did you mean `--quiet`?");
  says({"run", "m.toml", "--no-such-option"}, "`frt-host run --help` lists them");
}

TEST_CASE("numbers out of range are refused with the range") {
  const auto refuses = [](const Path& arguments, const std::string& words) {
    const std::string text = answer(arguments);
    INFO(text);
    CHECK(text.find(words) != std::string::npos);
  };
  refuses({"run", "--seed", "18446744073709551616"}, "is outside 0 to 18446744073709551615");
  refuses({"run", "--seed=-1"}, "'-1' is outside 0 to 18446744073709551615");
  refuses({"run", "--prompt-ids", "1,2147483648"}, "'2147483648' is outside");
  refuses({"run", "--prompt-ids", ""}, "'' is no whole number");
  refuses({"run", "--max-new=-1"}, "'-1' is no whole number");
  refuses({"run", "--temperature", "1e39"}, "'1e39' is outside");
  refuses({"bench", "--repetitions", "0"}, "'0' is outside 1 to 100000");
  refuses({"bench", "--warmup", "4294967296"}, "'4294967296' is outside 0 to 4294967295");
  refuses({"rollout", "--takeover=-1:5"}, "'-1:5' is no FROM:TO");
  refuses({"rollout", "--takeover=5:4"}, "'5:4' is no FROM:TO");
}

// The help is read by people who do not know the program: each line tells what to do in a sentence
// that begins with its verb, in the imperative.
TEST_CASE("the help of every command and option is an imperative sentence") {
  const std::set<std::string> verbs = {
      "Act",     "Add",      "Allow",    "Answer", "Append",   "Begin",   "Check",     "Choose",
      "Compare", "Connect",  "Continue", "Copy",   "Decode",   "Divide",  "Draw",      "Drop",
      "End",     "Explain",  "Fail",     "Fill",   "Generate", "Give",    "Interrupt", "Keep",
      "Leave",   "Let",      "Limit",    "List",   "Listen",   "Load",    "Lower",     "Make",
      "Measure", "Override", "Pass",     "Pin",    "Plan",     "Prefill", "Print",     "Read",
      "Refuse",  "Remove",   "Render",   "Repeat", "Replace",  "Replay",  "Represent", "Restore",
      "Run",     "Sample",   "Save",     "Search", "Seed",     "Send",    "Serve",     "Set",
      "Show",    "Start",    "Take",     "Talk",   "Tokenize", "Try",     "Unpin",     "Use",
      "Write"};
  const auto check = [&](const std::string& where, std::string doc) {
    CAPTURE(where);
    CAPTURE(doc);
    for (const char* condition : {"With ", "Without "}) {
      const std::size_t colon = doc.find(": ");
      if (!doc.starts_with(condition) || colon == std::string::npos) continue;
      doc.erase(0, colon + 2);
      doc[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(doc[0])));
    }
    CHECK(verbs.contains(doc.substr(0, doc.find_first_of(" ,"))));
    CHECK(!doc.ends_with('.'));
  };
  App app("frt-host");
  add_commands(app);
  std::size_t count = 0;
  walk(app.program(), {}, [&](const Command& command, const Path& path) {
    if (!path.empty()) check(joined(path), command.doc());
    for (const Option& option : command.options()) {
      const std::vector<std::string> names = option.long_names();
      check(joined(path) + (names.empty() ? option.value_name() : names.front()), option.doc());
      ++count;
    }
  });
  CHECK(count > 200);
}
