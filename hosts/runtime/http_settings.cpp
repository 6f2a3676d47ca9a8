// SPDX-License-Identifier: Apache-2.0
#include "runtime/http_settings.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <frt/core/config.hpp>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <set>
#include <utility>

#include "net/address.hpp"

namespace frt::host {
namespace {

constexpr uint64_t kMostKeyFile = uint64_t{1} << 20;

core::OptionSpec option(std::string key, frt_config_type type, std::string fallback,
                        std::string doc, double minimum = 0, double maximum = 0) {
  core::OptionSpec spec;
  spec.key = std::move(key);
  spec.type = type;
  spec.default_text = std::move(fallback);
  spec.doc = std::move(doc);
  spec.minimum = minimum;
  spec.maximum = maximum;
  return spec;
}

// The parts between commas, without spaces around them.
std::vector<std::string> split(const std::string& key, const std::string& text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::size_t first = text.find_first_not_of(' ', begin);
    const std::size_t last = text.find_last_not_of(' ', comma == 0 ? 0 : comma - 1);
    if (first >= comma || last == text.npos || last < first) {
      throw Error(
          FRT_ERR_INVALID_ARGUMENT,
          key + " = '" + text + "' has an empty part; write parts with commas between them");
    }
    parts.push_back(text.substr(first, last - first + 1));
    begin = comma + 1;
  }
  return parts;
}

// Names of hosts, as the gate compares them.
std::vector<std::string> lowered(std::vector<std::string> names) {
  for (std::string& name : names) {
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return names;
}

std::map<std::string, std::string> parse_aliases(const std::string& text) {
  std::map<std::string, std::string> aliases;
  for (const std::string& part : split("aliases", text)) {
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == part.npos || equals + 1 == part.size()) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "aliases = '" + text + "': a part is NAME=MODEL, e.g. \"gpt-5=coder, *=coder\"");
    }
    if (!aliases.emplace(part.substr(0, equals), part.substr(equals + 1)).second) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "aliases = '" + text + "' has '" + part.substr(0, equals) + "' twice");
    }
  }
  return aliases;
}

core::HostSchema http_host_schema() {
  core::OptionSpec model =
      option("model", FRT_CONFIG_STRING, "", "the language model; default: the only one");
  model.reference = "model";
  std::vector<core::OptionSpec> options = {
      model,
      option("more_models", FRT_CONFIG_STRING, "",
             "other language models, with commas; each on a device table of its own"),
      option("aliases", FRT_CONFIG_STRING, "",
             "names that clients send: \"NAME=MODEL, *=MODEL\"; *: every other name"),
      option("listen", FRT_CONFIG_STRING, "127.0.0.1:8080", "address and port, or unix:PATH"),
      option("key_file", FRT_CONFIG_PATH, "",
             "lines 'NAME SECRET', readable by its owner alone; empty: no key is asked for"),
      option(
          "tls_certificate", FRT_CONFIG_PATH, "",
          "PEM: the server's certificate, then those between it and its authority; empty: no TLS"),
      option("tls_key", FRT_CONFIG_PATH, "",
             "PEM: the certificate's key, readable by its owner alone"),
      option("max_requests_per_key", FRT_CONFIG_INT, "0",
             "requests of one key at a time; 0: no limit", 0, 65536),
      option("requests_per_minute", FRT_CONFIG_INT, "0",
             "requests of one key per minute; 0: no limit", 0, 1000000),
      option("page", FRT_CONFIG_BOOL, "true",
             "the built-in page, at /; its files hold no secret and need no key"),
      option("allowed_hosts", FRT_CONFIG_STRING, "",
             "names of this server in Host headers, with commas, besides addresses and localhost"),
      option("allowed_origins", FRT_CONFIG_STRING, "",
             "pages that may send requests, with commas: \"https://app.example\""),
      option("max_body", FRT_CONFIG_SIZE, "16M", "bytes of a request's body"),
      option("max_import", FRT_CONFIG_SIZE, "4G",
             "bytes of a capsule that is imported; they go to the disk, not to memory"),
      option("buffer_memory", FRT_CONFIG_SIZE, "128M",
             "bytes of the bodies of all connections; at least max_body"),
      option("stream_buffer", FRT_CONFIG_SIZE, "1M",
             "bytes that may wait for one client of a stream; beyond that it is cut off"),
      option("max_connections", FRT_CONFIG_INT, "256", "connections at a time", 1, 65536),
      option("head_timeout_ms", FRT_CONFIG_INT, "10000",
             "milliseconds until a request's head is complete", 1, 3600000),
      option("body_timeout_ms", FRT_CONFIG_INT, "60000",
             "milliseconds until a request's body is complete", 1, 3600000),
      option("idle_timeout_ms", FRT_CONFIG_INT, "60000",
             "milliseconds after which a connection without a request is closed", 1, 86400000),
      option("write_timeout_ms", FRT_CONFIG_INT, "30000",
             "milliseconds after which a client that takes nothing is cut off", 1, 3600000),
      option("heartbeat_ms", FRT_CONFIG_INT, "10000",
             "milliseconds of silence after which a stream sends a heartbeat", 1, 3600000),
      option("queue", FRT_CONFIG_INT, "32",
             "requests that may wait for a slot of a model; one more gets a 429", 1, 65536),
      option("hot_contexts", FRT_CONFIG_INT, "0",
             "conversations whose slots are not given to requests without one", 0, 65536),
      option("step_ms", FRT_CONFIG_FLOAT, "100",
             "milliseconds of a step on average while an answer is generated", 0, 60000),
      option("workers", FRT_CONFIG_INT, "2", "threads that parse, render and tokenize", 1, 64),
      option("max_waiting", FRT_CONFIG_INT, "64",
             "requests that may wait for a worker; one more gets a 429", 1, 65536),
      option("capsules_per_key", FRT_CONFIG_INT, "64",
             "named and pinned capsules that a key may have of a model", 1, 65536),
      option("fair_keys", FRT_CONFIG_BOOL, "true",
             "a free slot goes to the key that has the fewest, not to the request that came first"),
      option("pins_per_key", FRT_CONFIG_INT, "0",
             "sessions that a key may have pinned of a model; 0: half of its slots", 0, 65536),
      option("max_tokens", FRT_CONFIG_SIZE, "32k", "tokens of one answer at most"),
      option("request_timeout_s", FRT_CONFIG_INT, "0",
             "seconds after which an answer ends; 0: never", 0, 86400),
      option("drain_s", FRT_CONFIG_INT, "30",
             "seconds that answers may continue after SIGTERM; then they end with an error", 0,
             86400),
      option("sort_tools", FRT_CONFIG_BOOL, "false",
             "tools by name, for clients that send them in changing order"),
      option("request_log", FRT_CONFIG_PATH, "",
             "file of JSON lines about requests, without prompts and answers; empty: none"),
  };
  return {.type = "http",
          .options = std::move(options),
          .doc = "language models behind HTTP, for coding agents and SDKs"};
}

}  // namespace

HostKind http_host_kind() {
  return {http_host_schema(), [](const core::Manifest& manifest, const core::HostSpec& host) {
            check_models(manifest, http_settings(host.settings));
          }};
}

HttpSettings http_settings(const core::Manifest& manifest) {
  if (const core::HostSpec* host = manifest.find_host("http")) {
    return http_settings(host->settings);
  }
  core::Diagnostics none;
  return http_settings(core::resolve_config(http_host_schema().options, {}, {}, none));
}

HttpSettings http_settings(const core::Config& given) {
  const auto whole = [&](const char* key) { return static_cast<uint32_t>(given.integer(key)); };
  const auto size = [&](const char* key) { return static_cast<uint64_t>(given.integer(key)); };
  const auto time = [&](const char* key) { return std::chrono::milliseconds(given.integer(key)); };
  HttpSettings settings;
  if (const std::string& model = given.text("model"); !model.empty()) settings.models = {model};
  for (std::string& more : split("more_models", given.text("more_models"))) {
    if (settings.models.empty() || std::ranges::count(settings.models, more) > 0) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "more_models = '" + given.text("more_models") +
                      "': name the first one with `model`, and each model once");
    }
    settings.models.push_back(std::move(more));
  }
  settings.service.aliases = parse_aliases(given.text("aliases"));
  HttpOptions& server = settings.server;
  server.listen = given.text("listen");
  server.max_body = size("max_body");
  server.buffer_memory = size("buffer_memory");
  server.stream_buffer = size("stream_buffer");
  server.max_connections = whole("max_connections");
  server.head_timeout = time("head_timeout_ms");
  server.body_timeout = time("body_timeout_ms");
  server.idle_timeout = time("idle_timeout_ms");
  server.write_timeout = time("write_timeout_ms");
  server.heartbeat = time("heartbeat_ms");
  server.check();
  LmServiceOptions& service = settings.service;
  service.gate = {lowered(split("allowed_hosts", given.text("allowed_hosts"))),
                  lowered(split("allowed_origins", given.text("allowed_origins")))};
  service.key_limits = {whole("max_requests_per_key"), whole("requests_per_minute")};
  service.page = given.integer("page") != 0;
  service.workers = whole("workers");
  service.max_waiting = whole("max_waiting");
  service.max_import = size("max_import");
  service.kept_capsules = whole("capsules_per_key");
  service.api.limits.body = server.max_body;
  service.api.limits.max_tokens = size("max_tokens");
  service.api.sort_tools = given.integer("sort_tools") != 0;
  service.request_timeout = std::chrono::seconds(given.integer("request_timeout_s"));
  settings.engine.queue_limit = whole("queue");
  settings.engine.hot_contexts = whole("hot_contexts");
  settings.engine.fair_owners = given.integer("fair_keys") != 0;
  settings.engine.pins_per_owner = whole("pins_per_key");
  settings.engine.step_seconds = given.find("step_ms")->number / 1e3;
  settings.key_file = given.text("key_file");
  settings.request_log = given.text("request_log");
  settings.tls_certificate = given.text("tls_certificate");
  settings.tls_key = given.text("tls_key");
  if (settings.tls_certificate.empty() != settings.tls_key.empty()) {
    const bool key = settings.tls_key.empty();
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(key ? "tls_certificate" : "tls_key") +
                                              " comes with " +
                                              (key ? "tls_key" : "tls_certificate") +
                                              ", which is missing; name both, or neither");
  }
  settings.drain = std::chrono::seconds(given.integer("drain_s"));
  require_key_or_loopback(settings);
  return settings;
}

void check_models(const core::Manifest& manifest, const HttpSettings& settings) {
  const auto refuse = [](const std::string& text) { throw Error(FRT_ERR_INVALID_ARGUMENT, text); };
  std::set<std::string> devices;
  if (const core::HostSpec* robot = manifest.find_host("robot")) {
    const core::ModelSpec* policy = manifest.find_model(robot->settings.text("model"));
    if (policy) devices.insert(policy->device());
  }
  for (const std::string& name : settings.models) {
    const core::ModelSpec* spec = manifest.find_model(name);
    if (!spec) {
      refuse("names a model '" + name + "', which the manifest does not have");
    } else if (!devices.insert(spec->device()).second) {
      refuse("serves '" + name + "' on [device." + spec->device() +
             "], which another served model uses; give each a device table of its own");
    }
  }
  for (const auto& [name, model] : settings.service.aliases) {
    if (settings.models.empty() || std::ranges::count(settings.models, model) > 0) continue;
    refuse("has the alias " + name + "=" + model + ", and serves no such model");
  }
}

void choose(HttpSettings& settings, const HttpChoice& choice) {
  if (!choice.models.empty()) settings.models = choice.models;
  if (!choice.listen.empty()) settings.server.listen = choice.listen;
  require_key_or_loopback(settings);
}

void require_key_or_loopback(const HttpSettings& settings) {
  const ListenAddress listen = parse_listen(settings.server.listen, true);
  const bool local = !listen.unix_path.empty() || listen.address.is_loopback();
  if (local || !settings.key_file.empty()) return;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "listen = '" + settings.server.listen +
                  "' lets other machines in; name a key_file, or listen on 127.0.0.1");
}

std::shared_ptr<const TlsContext> read_tls(const HttpSettings& settings) {
  if (settings.tls_certificate.empty()) return nullptr;
  return TlsContext::load(settings.tls_certificate, settings.tls_key);
}

std::vector<ApiKey> read_keys(const std::filesystem::path& path) {
  if (path.empty()) return {};
  const std::string source = "key_file " + path.string();
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(FRT_ERR_BAD_STATE, source + " can be used by others; run: chmod 600 FILE");
  }
  return parse_keys(io::read_file(path, "key_file", kMostKeyFile), source);
}

}  // namespace frt::host
