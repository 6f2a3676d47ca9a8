// SPDX-License-Identifier: Apache-2.0
// frt-host launch: starts a coding agent against a running server, with the environment and the
// options that it needs. What it sets goes to stderr; secrets do not.
#include <fmt/format.h>
#include <unistd.h>
#include <frt/io/json.hpp>
#include <frt/io/utf8.hpp>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/app.hpp"
#include "cli/terminal/output.hpp"
#include "http/client.hpp"
#include "runtime/http_settings.hpp"

namespace frt::host {
namespace {

struct LaunchOptions {
  std::string agent;
  std::string url = "http://127.0.0.1:8080";
  std::string model, key_file, ca_file;
  std::vector<std::string> arguments;
};

// What is served, as GET /v1/models says.
struct Target {
  std::string url, secret, model;
  uint64_t context = 0;
};

struct Start {
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;
};

constexpr const char* kKeyVariable = "FRT_API_KEY";

Target find_target(const LaunchOptions& options) {
  Target target{.url = options.url, .secret = "", .model = options.model};
  if (!options.key_file.empty()) target.secret = read_keys(options.key_file).front().secret;
  const FetchedAnswer answer = http_get(target.url, "/v1/models", target.secret, options.ca_file);
  if (answer.status != 200) {
    throw Error(FRT_ERR_IO, fmt::format("{} answered {}{}", target.url, answer.status,
                                        answer.status == 401 ? "; name its --key-file" : ""));
  }
  const io::Json body = io::parse_json(answer.body, target.url);
  const auto data = body.is_object() ? body.find("data") : body.end();
  std::string names;
  if (body.is_object() && data != body.end() && data->is_array()) {
    for (const io::Json& model : *data) {
      if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
      const std::string name = model["id"].get<std::string>();
      names += (names.empty() ? "" : ", ") + io::printable(name);
      if (!target.model.empty() && name != target.model) continue;
      const auto length = model.find("max_model_len");
      if (length == model.end() || !length->is_number_unsigned()) {
        throw Error(FRT_ERR_NOT_READY, "the model is loading; try again when it is ready");
      }
      target.context = length->get<uint64_t>();
      target.model = name;
      return target;
    }
  }
  throw Error(FRT_ERR_NOT_FOUND, target.url + " does not serve that model; it serves: " + names);
}

// By which each kind of agent is told whom to believe: Node adds to what it knows, OpenSSL and Rust
// take the file instead.
void trust(const LaunchOptions& options, Start& start) {
  if (options.ca_file.empty()) return;
  const std::string file = std::filesystem::absolute(options.ca_file).string();
  start.environment.emplace_back(
      options.agent == "claude" ? "NODE_EXTRA_CA_CERTS" : "SSL_CERT_FILE", file);
}

// Agents refuse an empty key.
std::string key_or_word(const Target& target) {
  return target.secret.empty() ? "none" : target.secret;
}

Start claude(const Target& target) {
  const std::string& model = target.model;
  return {{{"ANTHROPIC_BASE_URL", target.url},
           {"ANTHROPIC_API_KEY", key_or_word(target)},
           {"ANTHROPIC_MODEL", model},
           {"ANTHROPIC_SMALL_FAST_MODEL", model},
           {"ANTHROPIC_DEFAULT_HAIKU_MODEL", model},
           {"ANTHROPIC_DEFAULT_SONNET_MODEL", model},
           {"ANTHROPIC_DEFAULT_OPUS_MODEL", model},
           {"CLAUDE_CODE_MAX_CONTEXT_TOKENS", std::to_string(target.context)},
           {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"}},
          {"claude"}};
}

// A TOML string, as codex reads its -c options.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

Start codex(const Target& target) {
  return {{{kKeyVariable, key_or_word(target)}},
          {"codex", "-c", "model=" + quoted(target.model), "-c", "model_provider=\"frt\"", "-c",
           "model_context_window=" + std::to_string(target.context), "-c",
           fmt::format("model_providers.frt={{name=\"frt\",base_url={},env_key=\"{}\","
                       "wire_api=\"responses\"}}",
                       quoted(target.url + "/v1"), kKeyVariable)}};
}

Start aider(const Target& target) {
  return {{{"OPENAI_API_BASE", target.url + "/v1"}, {"OPENAI_API_KEY", key_or_word(target)}},
          {"aider", "--model", "openai/" + target.model}};
}

ExitCode launch(const LaunchOptions& options) {
  const Target target = find_target(options);
  Start start = options.agent == "claude"  ? claude(target)
                : options.agent == "codex" ? codex(target)
                                           : aider(target);
  trust(options, start);
  // Claude Code would send the user's own token beside the key.
  if (options.agent == "claude") unsetenv("ANTHROPIC_AUTH_TOKEN");
  for (const auto& [name, value] : start.environment) {
    const bool secret = !target.secret.empty() && value == target.secret;
    print_err("{}={}\n", name, secret ? "(the key)" : io::printable(value));
    setenv(name.c_str(), value.c_str(), 1);
  }
  start.command.insert(start.command.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> arguments;
  std::string shown;
  for (std::string& argument : start.command) {
    arguments.push_back(argument.data());
    shown += (shown.empty() ? "" : " ") + io::printable(argument);
  }
  arguments.push_back(nullptr);
  print_err("{}\n", shown);
  std::fflush(stderr);
  execvp(arguments[0], arguments.data());
  throw Error(FRT_ERR_NOT_FOUND,
              start.command[0] + " cannot be started: " + std::generic_category().message(errno) +
                  "; install it, or put it on the PATH");
}

}  // namespace

void add_launch_command(App& app) {
  auto options = std::make_shared<LaunchOptions>();
  Command command =
      app.program().add_subcommand("launch", "Start a coding agent against a running server");
  command.add_option("agent", options->agent, "Choose the agent to start")
      .required()
      .one_of({"codex", "claude", "aider"});
  command.add_option("arguments", options->arguments,
                     "Pass these arguments to the agent; write them after --");
  command.add_option("--url", options->url, "Connect the agent to this server")
      .type_name("URL")
      .capture_default_str();
  command.add_option("--model", options->model, "Use this model; default: the server's first")
      .type_name("NAME");
  command
      .add_option("--key-file", options->key_file,
                  "Send the first key of this file, which is the server's key_file")
      .type_name("FILE");
  command
      .add_option(
          "--ca-file", options->ca_file,
          "Use the certificate authorities in FILE (PEM) for an https server, also in the agent")
      .type_name("FILE");
  command.examples(
      {"launch claude", "launch codex --url http://127.0.0.1:9000 -- exec 'fix the tests'"});
  app.add_command(command, [options] { return launch(*options); });
}

}  // namespace frt::host
