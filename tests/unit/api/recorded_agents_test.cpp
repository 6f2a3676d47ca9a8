// SPDX-License-Identifier: Apache-2.0
// What coding agents sent in five turns with a tool each (tests/agents/proxy.py wrote it down).
#include <frt/io/json.hpp>

#include <algorithm>
#include <map>

#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

struct Recorded {
  Json fixture;
  std::vector<ApiCall> calls;
};

const Protocol& protocol_of(const std::string& path) {
  static const std::map<std::string, const Protocol*> kProtocols = {
      {"/v1/chat/completions", &chat_completions()},
      {"/v1/responses", &responses()},
      {"/v1/messages", &messages()}};
  return *kProtocols.at(path.substr(0, path.find('?')));
}

Recorded recorded(const std::string& agent) {
  Recorded result;
  result.fixture = frt::io::read_json_file(std::string(FRT_FIXTURES_DIR) + "/agents/recorded/" +
                                           agent + ".json");
  for (const Json& request : result.fixture.at("requests")) {
    std::vector<std::pair<std::string, std::string>> headers;
    for (const auto& [name, value] : request.at("headers").items())
      headers.emplace_back(name, value);
    result.calls.push_back(
        protocol_of(request.at("path")).parse(request.at("body").dump(), headers, {}));
  }
  return result;
}

}  // namespace

TEST_CASE("each turn of a coding agent goes on behind the prompt of the turn before") {
  for (const char* agent : {"codex", "claude-code", "mini-swe-agent"}) {
    CAPTURE(agent);
    const std::vector<ApiCall> calls = recorded(agent).calls;
    REQUIRE(calls.size() == 6);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      CAPTURE(i);
      CHECK(calls[i].tools == calls[0].tools);
      CHECK(calls[i].chat_options == calls[0].chat_options);
      CHECK(calls[i].session == calls[0].session);
      if (i == 0) continue;
      const Json& before = calls[i - 1].messages;
      const Json& now = calls[i].messages;
      REQUIRE(now.size() > before.size());
      CHECK(std::equal(before.begin(), before.end(), now.begin()));
    }
  }
}

TEST_CASE("what coding agents call and answer reaches the model") {
  for (const char* agent : {"codex", "claude-code", "mini-swe-agent"}) {
    CAPTURE(agent);
    const Recorded record = recorded(agent);
    const Json& last = record.calls.back().messages;
    std::size_t calls = 0, answers = 0;
    for (const Json& message : last) {
      calls += message.value("tool_calls", Json::array()).size();
      answers += message.at("role") == "tool";
    }
    CHECK(calls == 5);
    CHECK(answers == 5);
    CHECK(record.calls[0].tools.size() > 0);
    CHECK(record.calls[0].session.empty() == (std::string(agent) == "mini-swe-agent"));
  }
}
