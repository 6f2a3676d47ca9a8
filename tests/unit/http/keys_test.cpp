// SPDX-License-Identifier: Apache-2.0
// Keys, the gate, trace ids and the text of metrics: what needs no connection.
#include "http/keys.hpp"

#include <doctest/doctest.h>
#include <frt/error.hpp>

#include <string>
#include <vector>

#include "http/gate.hpp"
#include "http/trace.hpp"
#include "net/address.hpp"
#include "net/metrics_text.hpp"

using namespace frt::host;
using namespace std::chrono_literals;

namespace {

HttpRequest with(HttpHeaders headers, std::string address = "127.0.0.1") {
  HttpRequest request;
  request.headers = std::move(headers);
  request.address = std::move(address);
  return request;
}

const std::string kOne = "first-secret-0123456789", kTwo = "other-secret-0123456789";

}  // namespace

TEST_CASE("a key file is read line by line, and errors never quote a secret") {
  const auto keys = parse_keys("# agents\n\nalice " + kOne + "\r\nbob " + kTwo + "\n", "keys");
  REQUIRE(keys.size() == 2);
  CHECK(keys[0].name == "alice");
  CHECK(keys[0].secret == kOne);
  CHECK(keys[1].secret == kTwo);
  for (const std::string& bad : std::vector<std::string>{
           "", "# none\n", "alice\n" + kOne, "alice short\n", "alice " + kOne + "\nalice " + kTwo,
           "alice " + kOne + "\nbob " + kOne, "../alice " + kOne, "alice " + kOne + " more",
           "alice \x01 23456789abcdefgh"}) {
    CAPTURE(bad);
    std::string what;
    try {
      parse_keys(bad, "keys");
    } catch (const frt::Error& error) {
      what = error.what();
    }
    CHECK(what.starts_with("keys"));
    CHECK(what.find(kOne) == what.npos);
  }
}

TEST_CASE("a secret is taken from either header and names its owner") {
  const KeyRing ring({{"alice", kOne}, {"bob", kTwo}}, {});
  CHECK(ring.owner(sent_secret(with({{"authorization", "Bearer " + kTwo}}))) == "bob");
  CHECK(ring.owner(sent_secret(with({{"authorization", "bearer " + kOne}}))) == "alice");
  CHECK(ring.owner(sent_secret(with({{"x-api-key", kOne}}))) == "alice");
  CHECK_FALSE(ring.owner(sent_secret(with({{"authorization", kOne}}))));
  CHECK_FALSE(ring.owner(sent_secret(with({}))));
  CHECK_FALSE(ring.owner(kOne.substr(1)));
  CHECK(KeyRing({}, {}).owner("") == "");
}

TEST_CASE("a key has its own number of requests at a time and a minute") {
  KeyRing ring({{"alice", kOne}, {"bob", kTwo}}, {.max_requests = 2, .per_minute = 3});
  const auto now = KeyRing::Clock::now();
  CHECK(ring.enter("alice", now));
  CHECK(ring.enter("alice", now));
  CHECK_FALSE(ring.enter("alice", now));  // at a time
  CHECK(ring.enter("bob", now));
  ring.leave("alice");
  CHECK(ring.enter("alice", now));
  ring.leave("alice");
  CHECK_FALSE(ring.enter("alice", now));  // a minute
  CHECK(ring.enter("alice", now + 30s));
}

TEST_CASE("an owner that the ring never heard of has the limits of all, and no other's place") {
  KeyRing ring({{"alice", kOne}}, {.max_requests = 1});
  CHECK(ring.enter("bob"));
  CHECK_FALSE(ring.enter("bob"));
  CHECK(ring.enter("alice"));
  ring.leave("bob");
  CHECK(ring.counts().count("bob") == 0);
  CHECK(ring.counts().at("alice").running == 1);
}

TEST_CASE("keys and limits are replaced, and requests of a removed key go on and are forgotten") {
  KeyRing ring({{"alice", kOne}, {"bob", kTwo}}, {.max_requests = 1});
  CHECK(ring.enter("alice"));
  CHECK(ring.enter("bob"));
  ring.replace({{"bob", kOne}}, {.max_requests = 2});
  CHECK(ring.owner(kOne) == "bob");
  CHECK_FALSE(ring.owner(kTwo));
  CHECK(ring.counts().at("alice").running == 1);
  ring.leave("alice");
  CHECK(ring.counts().count("alice") == 0);
  CHECK(ring.enter("bob"));  // its running one counts
  CHECK_FALSE(ring.enter("bob"));
  CHECK(ring.counts().at("bob").requests == 2);
  CHECK(ring.counts().at("bob").refused == 1);
}

TEST_CASE("only names that cannot be rebound pass the gate") {
  const GateRules rules{.hosts = {"frt.example"}, .origins = {"https://app.example"}};
  const auto passes = [&](HttpHeaders headers) {
    return gate_refusal(rules, with(std::move(headers))) == nullptr;
  };
  CHECK(passes({{"host", "127.0.0.1:8080"}}));
  CHECK(passes({{"host", "localhost"}}));
  CHECK(passes({{"host", "[::1]:8080"}}));
  CHECK(passes({{"host", "FRT.example:1"}}));
  CHECK_FALSE(passes({{"host", "evil.example"}}));
  CHECK_FALSE(passes({{"host", "localhost.evil.example"}}));
  CHECK_FALSE(passes({{"host", "127.0.0.1.evil.example"}}));
  CHECK_FALSE(passes({{"host", ""}}));
  CHECK_FALSE(passes({}));
  CHECK(passes({{"host", "127.0.0.1:80"}, {"origin", "http://127.0.0.1:80"}}));
  CHECK(passes({{"host", "127.0.0.1:80"}, {"origin", "https://app.example"}}));
  CHECK_FALSE(passes({{"host", "127.0.0.1:80"}, {"origin", "http://127.0.0.1:81"}}));
  CHECK_FALSE(passes({{"host", "127.0.0.1:80"}, {"origin", "null"}}));
  CHECK(gate_refusal(rules, with({{"host", "anything"}}, "unix")) == nullptr);
}

TEST_CASE("a path and a query are decoded, and what is malformed is nothing") {
  CHECK(percent_decoded("a%20b%2Fc+d") == "a b/c+d");
  CHECK(percent_decoded("") == "");
  for (const char* bad : {"%", "%2", "a%zz", "%2%20"}) {
    CAPTURE(bad);
    CHECK_FALSE(percent_decoded(bad).has_value());
  }
  CHECK(query_value("x=1&model=a%2Fb&model=c", "model") == "a/b");
  CHECK(query_value("models=1&&model", "model") == "");
  CHECK_FALSE(query_value("models=1", "model").has_value());
  CHECK_FALSE(query_value("model=%g0", "model").has_value());
}

TEST_CASE("only a page of an allowed origin is told what it may ask") {
  const GateRules rules{.hosts = {}, .origins = {"https://app.example"}};
  const auto asks = [&](std::string method, HttpHeaders headers) {
    HttpRequest request = with(std::move(headers));
    request.method = std::move(method);
    return preflight_answer(rules, request);
  };
  const HttpHeaders good = {{"origin", "https://APP.example"},
                            {"access-control-request-method", "POST"},
                            {"access-control-request-headers", "authorization, x-api-key"}};
  const auto answer = asks("OPTIONS", good);
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK(answer->headers.back().second == "authorization, x-api-key");
  CHECK_FALSE(asks("GET", good));
  CHECK_FALSE(asks("OPTIONS", {good[0]}));
  CHECK_FALSE(asks("OPTIONS", {{"origin", "https://evil.example"}, good[1]}));
  const auto odd = asks("OPTIONS", {good[0], good[1], {"access-control-request-headers", "a: b"}});
  REQUIRE(odd);
  CHECK(odd->headers.size() == 2);
  CHECK(cross_origin_headers(rules, with({good[0]})).front().second == "https://APP.example");
  CHECK(cross_origin_headers(rules, with({{"origin", "null"}})).empty());
  CHECK(cross_origin_headers(rules, with({})).empty());
}

TEST_CASE("a request is a span of the trace that its traceparent names, or begins one") {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c", span = "b7ad6b7169203331";
  const std::string good = "00-" + trace + "-" + span + "-00", state = "vendor=1,other=a:b";
  const TraceContext context = trace_context(&good, &state);
  CHECK(context.trace == trace);
  CHECK(context.parent == span);
  CHECK(context.flags == "00");  // not sampled stays so
  CHECK(context.state == state);
  CHECK(context.span.size() == 16);
  CHECK(context.span != span);
  CHECK(traceparent(context) == "00-" + trace + "-" + context.span + "-00");
  const std::string later = "01-" + trace + "-" + span + "-01-more";
  CHECK(trace_context(&later, nullptr).trace == trace);
  for (const std::string& bad : std::vector<std::string>{
           "", good + "-more", "ff-" + trace + "-" + span + "-01", good.substr(0, 53),
           "00-" + std::string(32, '0') + "-" + span + "-01",
           "00-" + trace + "-" + std::string(16, '0') + "-01", "00-" + trace + "-" + span + "-0x",
           std::string(60, 'x')}) {
    CAPTURE(bad);
    const TraceContext own = trace_context(&bad, &state);
    CHECK(own.trace != trace);
    CHECK(own.trace.size() == 32);
    CHECK(own.parent.empty());
    CHECK(own.flags == "01");
    CHECK(own.state.empty());  // without its traceparent it means nothing
  }
  for (const std::string& bad : {std::string(513, '='), std::string("a=\x01"), std::string("a")}) {
    CHECK(trace_context(&good, &bad).state.empty());
  }
  CHECK(random_hex(16) != random_hex(16));
}

TEST_CASE("metrics have heads, escaped labels and cumulative buckets") {
  MetricsText text;
  text.family("a_total", "counter", "Things.");
  text.sample(3, {{"key", "x\"\\\n"}});
  text.family("b_seconds", "histogram", "Times.");
  const double bounds[] = {0.5, 1};
  const uint64_t counts[] = {1, 2, 3};
  text.histogram(bounds, counts, 6, 7.5);
  CHECK(text.take() ==
        "# HELP a_total Things.\n# TYPE a_total counter\na_total{key=\"x\\\"\\\\\\n\"} 3\n"
        "# HELP b_seconds Times.\n# TYPE b_seconds histogram\n"
        "b_seconds_bucket{le=\"0.5\"} 1\nb_seconds_bucket{le=\"1\"} 3\n"
        "b_seconds_bucket{le=\"+Inf\"} 6\nb_seconds_sum 7.5\nb_seconds_count 6\n");
}

TEST_CASE("a listener's address is an address with a port, or a path where that is allowed") {
  CHECK(parse_listen("127.0.0.1:80").port == 80);
  CHECK(parse_listen("[::]:0").address.is_v6());
  CHECK(parse_listen("unix:/run/frt.sock", true).unix_path == "/run/frt.sock");
  for (const char* bad : {"", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "host:80",
                          "unix:/run/frt.sock", "127.0.0.1:-1"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_listen(bad), frt::Error);
  }
  CHECK_THROWS_AS(parse_listen("unix:", true), frt::Error);
  CHECK_THROWS_AS(parse_listen("unix:" + std::string(200, 'x'), true), frt::Error);
}
