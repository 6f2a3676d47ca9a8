// SPDX-License-Identifier: Apache-2.0
// The service of language models: who is let in, what is told in which words, what is counted.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include "service_world.hpp"

namespace {

using namespace std::chrono_literals;
using namespace frt::test;
using frt::host::ApiKey;
using Json = nlohmann::json;

const std::string kAlice = "first-secret-0123456789", kBob = "other-secret-0123456789";

std::string with_key(const std::string& secret) {
  return "Authorization: Bearer " + secret + "\r\n";
}
frt::host::LmServiceOptions keyed(std::vector<ApiKey> keys, frt::host::KeyLimits limits = {}) {
  frt::host::LmServiceOptions options;
  options.keys = std::move(keys);
  options.key_limits = limits;
  return options;
}
std::string ask(const ServiceWorld& world, const std::string& bytes) {
  Peer peer(*world.server, bytes);
  return peer.read_all();
}

// A grammar that takes everything: it is compiled when `compiled` is open, and its first matcher is
// there when `read` is.
struct Gates {
  std::promise<void> compiled, read;
};
class OpenMatcher final : public frt::host::GrammarMatcher {
 public:
  bool fill(std::span<uint32_t> mask) override {
    std::ranges::fill(mask, UINT32_MAX);
    return true;
  }
  bool complete() const override { return true; }
  bool accept(int32_t) override { return true; }
  void rollback(uint32_t) override {}
  std::unique_ptr<GrammarMatcher> fork() const override { return std::make_unique<OpenMatcher>(); }
};
class GatedGrammar final : public frt::host::Grammar {
 public:
  explicit GatedGrammar(Gates& gates) : gates_(gates) {}
  std::unique_ptr<frt::host::GrammarMatcher> matcher() const override {
    gates_.read.get_future().wait();
    return std::make_unique<OpenMatcher>();
  }
  uint64_t bytes() const override { return 100; }

 private:
  Gates& gates_;
};
class GatedBackend final : public frt::host::GrammarBackend {
 public:
  explicit GatedBackend(Gates& gates) : gates_(gates) {}
  std::shared_ptr<const frt::host::Grammar> compile(const frt::host::GrammarSource&,
                                                    const frt::host::GrammarBudget&,
                                                    const std::function<bool()>&) const override {
    gates_.compiled.get_future().wait();
    return std::make_shared<GatedGrammar>(gates_);
  }

 private:
  Gates& gates_;
};

Json body_of(const std::string& answer) {
  return Json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
}

}  // namespace

TEST_CASE("a reply comes whole or streamed, and says how its prompt began") {
  const ServiceWorld world;
  const std::string whole = ask(world, completion());
  REQUIRE(whole.starts_with("HTTP/1.1 200 "));
  CHECK(body_of(whole)["usage"]["completion_tokens"] == 5);
  CHECK(body_of(whole)["frt"]["prefix_action"] == "read");
  const std::string stream = ask(world, completion(R"(, "stream": true)"));
  CHECK(stream.find("data: [DONE]") != stream.npos);
}

TEST_CASE("what is computed from logits is refused by name where the model gives none") {
  const ServiceWorld world;
  const auto refused = [&](const std::string& more, const std::string& field) {
    const std::string answer = ask(world, completion(more));
    CHECK(answer.starts_with("HTTP/1.1 400 "));
    CHECK(body_of(answer)["error"]["param"] == field);
    CHECK(body_of(answer)["error"]["message"].get<std::string>().starts_with(field + " "));
  };
  refused(R"(, "logprobs": 2)", "logprobs");
  refused(R"(, "logprobs": 2, "stream": true)", "logprobs");
  refused(R"(, "logprobs": 0, "echo": true)", "echo");
  CHECK(ask(world, completion(R"(, "logprobs": 0)")).starts_with("HTTP/1.1 200 "));
}

TEST_CASE("a key over its limit is refused before its body is read, and others are not") {
  ServiceWorld world(keyed({{"alice", kAlice}, {"bob", kBob}}, {.max_requests = 1}));
  HeldEngine held(world.engine);
  Peer first(*world.server, completion("", with_key(kAlice)));
  while (world.service.key_counts().count("alice") == 0) std::this_thread::sleep_for(1ms);
  // The body never comes.
  Peer second(*world.server, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" +
                                 with_key(kAlice) + "Content-Length: 100000\r\n\r\n");
  const std::string refused = second.read_all();
  CHECK(refused.starts_with("HTTP/1.1 429 "));
  CHECK(header_of(refused, "Retry-After") == "1");
  Peer other(*world.server, completion("", with_key(kBob)));
  held.release();
  CHECK(first.read_all().starts_with("HTTP/1.1 200 "));
  CHECK(other.read_all().starts_with("HTTP/1.1 200 "));
  while (world.service.key_counts().at("alice").running > 0) std::this_thread::sleep_for(1ms);
  CHECK(ask(world, completion("", with_key(kAlice))).starts_with("HTTP/1.1 200 "));
}

TEST_CASE("keys are replaced while requests of a removed one go on") {
  ServiceWorld world(keyed({{"alice", kAlice}}));
  HeldEngine held(world.engine);
  Peer first(*world.server, completion("", with_key(kAlice)));
  while (world.service.key_counts().count("alice") == 0) std::this_thread::sleep_for(1ms);
  world.service.replace_keys({{"bob", kBob}}, {});
  CHECK(ask(world, completion("", with_key(kAlice))).starts_with("HTTP/1.1 401 "));
  held.release();
  CHECK(first.read_all().starts_with("HTTP/1.1 200 "));
  CHECK(ask(world, completion("", with_key(kBob))).starts_with("HTTP/1.1 200 "));
}

TEST_CASE("each request has an id of its own within its client's trace, and the log has both") {
  const auto path =
      std::filesystem::temp_directory_path() / ("frt-service-" + std::to_string(getpid()));
  const std::string trace = "0af7651916cd43dd8448eb211c80319c", parent = "b7ad6b7169203331";
  const std::string headers =
      "traceparent: 00-" + trace + "-" + parent + "-00\r\ntracestate: vendor=1\r\n";
  std::set<std::string> ids;
  {
    const ServiceWorld world({}, {}, path);
    for (int i = 0; i < 3; ++i) {
      const std::string answer = ask(world, completion("", headers));
      ids.insert(header_of(answer, "X-Request-Id"));
      CHECK(header_of(answer, "request-id") == header_of(answer, "X-Request-Id"));
      const std::string named = header_of(answer, "traceparent");
      CHECK(named.starts_with("00-" + trace + "-"));
      CHECK(named.ends_with("-00"));
      CHECK(named.find(parent) == named.npos);
      CHECK(header_of(answer, "tracestate") == "vendor=1");
    }
  }
  CHECK(ids.size() == 3);
  std::ifstream file(path);
  std::map<std::string, int> events;
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line);
    CHECK(record["trace"] == trace);
    CHECK(ids.contains(record["id"]));
    if (record["event"] == "request") CHECK(record["parent"] == parent);
    if (record["event"] == "request") CHECK(record["span"].get<std::string>().size() == 16);
    ++events[record["event"]];
  }
  CHECK(events["request"] == 3);
  CHECK(events["generation"] == 3);
  std::filesystem::remove(path);
}

TEST_CASE("what is refused below the routes is told in the words of the route's protocol") {
  const ServiceWorld world({}, {.max_body = 1000, .body_timeout = 50ms});
  const std::string large = request("POST", "/v1/messages", std::string(1001, ' '));
  const Json anthropic = body_of(ask(world, large));
  CHECK(anthropic["type"] == "error");
  CHECK(anthropic["error"]["type"] == "request_too_large");
  const Json openai = body_of(ask(world, request("POST", "/v1/responses", std::string(1001, ' '))));
  CHECK(openai["error"]["code"] == "request_too_large");
  const std::string slow =
      ask(world, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n");
  CHECK(slow.starts_with("HTTP/1.1 408 "));
  CHECK(body_of(slow)["error"]["code"] == "request_timeout");
  CHECK(body_of(ask(world, "GET / HTTP/9\r\n\r\n"))["error"]["type"] == "invalid_request_error");
}

TEST_CASE("what a drain leaves over ends with an error that its clients answer by trying again") {
  ServiceWorld world;
  HeldEngine held(world.engine);
  Peer streamed(*world.server, completion(R"(, "stream": true)"));
  Peer whole(*world.server, completion());
  REQUIRE(streamed.read_until("200 OK"));
  while (world.engine.stats().queued < 2) std::this_thread::sleep_for(1ms);
  world.service.begin_drain();
  CHECK_FALSE(world.server->drain(20ms));
  world.service.end_replies();
  CHECK(world.server->drain(20s));
  const std::string events = streamed.read_all();
  const std::size_t at = events.find("data: {\"error\"");
  REQUIRE(at != events.npos);
  const Json error = Json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
  CHECK(error["error"]["code"] == "overloaded");
  CHECK(events.ends_with("0\r\n\r\n"));  // the stream is whole
  CHECK(whole.read_all().starts_with("HTTP/1.1 503 "));
  CHECK(header_of(whole.got, "Retry-After") == "1");
}

TEST_CASE(
    "a stream with a grammar begins when that is compiled, and goes on while its prompt is read") {
  Gates gates;
  ServiceWorld world({}, {.heartbeat = 20ms}, {}, true);
  const auto served = std::make_shared<frt::host::ServedModel>(
      world.model, world.engine,
      std::make_unique<frt::host::GrammarCompiler>(std::make_unique<GatedBackend>(gates),
                                                   frt::host::GrammarCompilerOptions{}));
  world.service.set_model("m", served);
  Peer peer(*world.server, completion(R"(, "stream": true, "guided_regex": "a*")"));
  while (world.engine.stats().prefilling == 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);  // the reply has heard that it began
  gates.compiled.set_value();
  CHECK(peer.read_until("HTTP/1.1 200 OK"));
  CHECK(peer.read_until(": waiting"));
  gates.read.set_value();
  CHECK(peer.read_all().find("data: [DONE]") != std::string::npos);
}

TEST_CASE("models and policies are listed with their states") {
  ServiceWorld world;
  const auto states = [&] {
    std::map<std::string, std::string> found;
    const Json list = body_of(ask(world, request("GET", "/v1/models")));
    for (const Json& each : list["data"]) {
      found[each["id"]] = each["state"];
    }
    return found;
  };
  world.service.set_policy("arm", "loading");
  CHECK(states() == std::map<std::string, std::string>{{"arm", "loading"}, {"m", "ready"}});
  world.service.set_policy("arm", "ready");
  CHECK(states()["arm"] == "ready");
  CHECK(body_of(ask(world, request("GET", "/v1/models/arm")))["type"] == "policy");
  world.service.set_model("m", nullptr);
  CHECK(states()["m"] == "loading");
  CHECK(ask(world, request("GET", "/health")).starts_with("HTTP/1.1 503 "));
  CHECK(ask(world, completion()).starts_with("HTTP/1.1 503 "));
  world.service.set_model("m", world.served);
  if (!world.hollow.rig.mock) return;
  world.engine.call([&](frt::host::EngineAccess&) {
    world.hollow.rig.mock->fail("exec_launch", FRT_ERR_DEVICE_LOST, 1000);
  });
  CHECK(ask(world, completion()).starts_with("HTTP/1.1 503 "));
  CHECK(states()["m"] == "failed");
  CHECK(body_of(ask(world, request("GET", "/health")))["status"] == "failed");
  world.engine.drain();
  world.hollow.rig.mock->pump();  // the mock looks at what is left
}

TEST_CASE("a policy has metrics while it is served, and the server tells of itself once it knows") {
  ServiceWorld world;
  const auto get = [&](const std::string& path) { return ask(world, request("GET", path)); };
  CHECK(get("/v1/about").starts_with("HTTP/1.1 503 "));
  world.service.set_about({{"object", "about"}});
  CHECK(get("/v1/about").ends_with("\r\n\r\n{\"object\":\"about\"}"));
  CHECK(get("/v1/policies/arm/metrics").starts_with("HTTP/1.1 404 "));
  world.service.set_policy("arm", "loading");
  CHECK(get("/v1/policies/arm/metrics").starts_with("HTTP/1.1 503 "));
  world.service.set_policy_metrics("arm", [] { return std::string("replies 3\n"); });
  world.service.set_policy("arm", "ready");  // leaves them
  const std::string metrics = get("/v1/policies/arm/metrics");
  CHECK(header_of(metrics, "Content-Type") == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(metrics.ends_with("\r\n\r\nreplies 3\n"));
  world.service.set_policy_metrics("arm", nullptr);
  CHECK(get("/v1/policies/arm/metrics").starts_with("HTTP/1.1 503 "));
}

TEST_CASE("the page needs no key, and is not there where it is turned off") {
  auto options = keyed({{"alice", kAlice}});
  const auto status = [](const ServiceWorld& world, const std::string& path) {
    return ask(world, request("GET", path)).substr(9, 3);
  };
  {
    const ServiceWorld world(options);
    CHECK(status(world, "/") == "200");
    CHECK(status(world, "/page/main.js") == "200");
    CHECK(status(world, "/page/none.js") == "404");
    CHECK(status(world, "/v1/about") == "401");
    const std::string page = ask(world, request("GET", "/"));
    CHECK(header_of(page, "Content-Security-Policy").starts_with("default-src 'none'; "));
    CHECK(header_of(page, "Cache-Control") == "no-cache");
    const std::string known = "If-None-Match: " + header_of(page, "ETag") + "\r\n";
    CHECK(ask(world, request("GET", "/", "", known)).substr(9, 3) == "304");
  }
  options.page = false;
  const ServiceWorld world(options);
  CHECK(status(world, "/") == "401");
  CHECK(ask(world, request("GET", "/", "", with_key(kAlice))).substr(9, 3) == "404");
  CHECK(ask(world, request("GET", "/page/main.js", "", with_key(kAlice))).substr(9, 3) == "404");
}

// Reads the text format 0.0.4 as strictly as Prometheus does, and more: every family has its HELP
// and TYPE first, its samples stand together, none is there twice, and histograms add up.
TEST_CASE("the page of metrics is what Prometheus reads") {
  ServiceWorld world(keyed({{"alice", kAlice}}));
  ask(world, completion("", with_key(kAlice)));
  while (world.service.key_counts().at("alice").running > 0) std::this_thread::sleep_for(1ms);
  const std::string answer = ask(world, request("GET", "/metrics", "", with_key(kAlice)));
  CHECK(header_of(answer, "Content-Type") == "text/plain; version=0.0.4; charset=utf-8");
  std::istringstream page(answer.substr(answer.find("\r\n\r\n") + 4));
  std::set<std::string> families, samples;
  std::map<std::string, double> values;
  std::string family, type;
  for (std::string line; std::getline(page, line);) {
    CAPTURE(line);
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first == "#") {
      if (second == "HELP") {
        CHECK(families.insert(third).second);
        family = third;
        type.clear();
        continue;
      }
      REQUIRE(second == "TYPE");
      CHECK(third == family);
      words >> type;
      CHECK((type == "counter" || type == "gauge" || type == "histogram"));
      continue;
    }
    const std::size_t space = line.rfind(' ');
    REQUIRE(space != line.npos);
    const std::string sample = line.substr(0, space), name = sample.substr(0, sample.find('{'));
    CHECK(samples.insert(sample).second);
    std::size_t used = 0;
    values[sample] = std::stod(line.substr(space + 1), &used);
    CHECK(used == line.size() - space - 1);
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == name.npos);
    REQUIRE_FALSE(type.empty());
    if (type == "histogram") {
      CHECK((name == family + "_bucket" || name == family + "_sum" || name == family + "_count"));
    } else {
      CHECK(name == family);
    }
    CHECK((type != "counter" || name.ends_with("_total")));
    CHECK((name == sample || sample.ends_with("\"}")));
  }
  CHECK(answer.ends_with("\n"));
  CHECK(values["frt_lm_prefixes_total{model=\"m\",action=\"read\"}"] == 1);
  CHECK(values["frt_lm_restore_seconds_count{model=\"m\"}"] == 0);
  CHECK(values["frt_http_key_requests_total{key=\"alice\"}"] == 1);
  CHECK(values["frt_http_key_prompt_tokens_total{key=\"alice\"}"] == 3);
  CHECK(values["frt_http_key_generated_tokens_total{key=\"alice\"}"] == 5);
  CHECK(values["frt_lm_queue_seconds_bucket{model=\"m\",le=\"+Inf\"}"] == 1);
  CHECK(values["frt_lm_queue_seconds_count{model=\"m\"}"] == 1);
}
