// SPDX-License-Identifier: Apache-2.0
// What is told of tools that changed between two requests of a conversation.
#include "http/lm/tool_memory.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

Json tools(const std::vector<std::string>& names, const std::string& changed = {}) {
  Json all = Json::array();
  for (const std::string& name : names) {
    all.push_back(
        {{"type", "function"},
         {"function", {{"name", name}, {"description", name == changed ? "new" : "old"}}}});
  }
  return all;
}

}  // namespace

TEST_CASE("tools that were added, removed, moved or changed are named, each conversation's own") {
  ToolMemory memory;
  const auto compare = [&](const Json& now) { return memory.compare("me", "talk", now); };
  CHECK(compare(tools({"a", "b", "c", "d"})).empty());  // the first
  CHECK(compare(tools({"a", "b", "c", "d"})).empty());  // the same
  CHECK(compare(tools({"d", "a", "b", "c"})) == "moved 'd'");
  CHECK(compare(tools({"d", "a", "b", "x"})) == "added 'x', removed 'c'");
  CHECK(compare(tools({"d", "a", "b", "x"}, "b")) == "changed 'b'");
  CHECK(memory.compare("me", "another", tools({"z"})).empty());
  CHECK(memory.compare("somebody else", "talk", tools({"z"})).empty());
}

TEST_CASE("many changes are cut, and many conversations forget the oldest") {
  ToolMemory memory;
  std::vector<std::string> many;
  for (int i = 0; i < 20; ++i) many.push_back("tool" + std::to_string(i));
  CHECK(memory.compare("me", "talk", tools({"a"})).empty());
  CHECK(memory.compare("me", "talk", tools(many)).ends_with(" and 12 more, removed 'a'"));
  for (std::size_t i = 0; i < ToolMemory::kMost; ++i) {
    memory.compare("me", std::to_string(i), tools({"a"}));
  }
  CHECK(memory.compare("me", "talk", tools({"a"})).empty());
}

}  // namespace frt::host
