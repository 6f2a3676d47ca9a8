// SPDX-License-Identifier: Apache-2.0
// Requests as coding agents send them (tests/fixtures/agents).
#include <frt/io/json.hpp>

#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

const Protocol& protocol_at(const std::string& path) {
  if (path == "/v1/responses") return responses();
  if (path == "/v1/messages") return messages();
  return chat_completions();
}

std::vector<ApiCall> turns_of(const std::string& agent) {
  const Json file =
      frt::io::read_json_file(std::string(FRT_FIXTURES_DIR "/agents/") + agent + ".json");
  Headers headers;
  for (const auto& [name, value] : file["headers"].items()) headers.emplace_back(name, value);
  std::vector<ApiCall> calls;
  for (const Json& body : file["turns"]) {
    calls.push_back(parse(protocol_at(file["path"]), body, headers));
  }
  return calls;
}

}  // namespace

TEST_CASE("the second turn of every agent begins with its first, to the byte") {
  for (const char* agent : {"codex", "claude_code", "opencode", "qwen_code", "cline", "continue",
                            "mini_swe_agent", "aider"}) {
    CAPTURE(agent);
    const std::vector<ApiCall> turns = turns_of(agent);
    REQUIRE(turns.size() == 2);
    const Json &first = turns[0].messages, &second = turns[1].messages;
    REQUIRE(second.size() > first.size());
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(second[i].dump() == first[i].dump());
    CHECK(turns[1].tools.dump() == turns[0].tools.dump());
    CHECK(turns[1].chat_options.dump() == turns[0].chat_options.dump());
    CHECK(turns[1].session == turns[0].session);
    CHECK(first[0]["role"] == "system");
    for (std::size_t i = 1; i < second.size(); ++i) CHECK(second[i]["role"] != "system");
  }
}

TEST_CASE("Codex: developer items are rules, grouped and custom tools are functions") {
  const std::vector<ApiCall> turns = turns_of("codex");
  const std::string rules = turns[0].messages[0]["content"];
  CHECK(rules.starts_with("You are Codex"));
  CHECK(rules.ends_with("</collaboration_mode>"));
  CHECK(rules.find("</permissions instructions>\n\n<collaboration_mode>") != rules.npos);
  std::string names;
  for (const ApiTool& tool : turns[0].tool_names) names += tool.name + " ";
  CHECK(names == "exec_command update_plan apply_patch mcp__files__read mcp__files__list ");
  CHECK(turns[0].tools_left_out == std::vector<std::string>{"web_search"});
  CHECK(turns[0].session == "019ab0de-7c1e");

  const Json& answer = turns[1].messages[3];
  CHECK(answer["reasoning_content"] == "The user wants a file.\n");
  CHECK(answer["content"] == "Writing it.");
  CHECK(answer["tool_calls"][0]["function"]["arguments"] ==
        "{\"cmd\": \"ls\", \"yield_time_ms\":1000}");
  CHECK(answer["tool_calls"][1]["function"]["arguments"] ==
        "{\"input\":\"*** Begin Patch\\n*** Add File: out.txt\\n+hello-frt\\n*** End Patch\\n\"}");
  CHECK(answer["tool_calls"][2]["function"]["name"] == "mcp__files__read");
  CHECK(turns[1].messages[5]["tool_call_id"] == "call_0af1_3");  // in the order of the calls
  CHECK(turns[1].messages[6]["content"] == "hello-frt\n");
}

TEST_CASE("Claude Code: what changes is gone, and a late system message stays in its place") {
  const std::vector<ApiCall> turns = turns_of("claude_code");
  const std::string rules = turns[0].messages[0]["content"];
  CHECK(rules.starts_with("You are a Claude agent"));
  CHECK(rules.ends_with("permission mode."));
  CHECK(turns[0].messages[2]["content"] ==
        "<system-reminder>\nThe user's git status is clean.\n</system-reminder>");
  CHECK(turns[0].chat_options ==
        Json::parse(R"({"enable_thinking": true, "preserve_thinking": true})"));
  CHECK(turns[0].tools[0]["function"]["parameters"].begin().key() == "$schema");
  CHECK(turns[0].session == "0b5e");
  const Json& second = turns[1].messages;
  REQUIRE(second.size() == 6);
  CHECK(second[3]["reasoning_content"] == "The user wants a file.");
  CHECK(second[3]["tool_calls"][0]["function"]["arguments"] ==
        "{\"command\":\"echo hello-frt > out.txt\",\"timeout\":1000}");
  CHECK(second[4]["content"] == "(Bash completed with no output)");
  CHECK(second[5]["content"] == "<system-reminder>\nThe todo list is empty.\n</system-reminder>");
}
