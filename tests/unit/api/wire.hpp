// SPDX-License-Identifier: Apache-2.0
// wire.hpp - requests and replies of the protocols, for their tests.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "http/api/protocol.hpp"

namespace frt::test {

using Json = nlohmann::ordered_json;
using host::ChatEvent;
using Headers = std::vector<std::pair<std::string, std::string>>;

inline host::ApiCall parse(const host::Protocol& protocol, const Json& body,
                           const Headers& headers = {}, const host::ApiOptions& options = {}) {
  return protocol.parse(body.dump(), headers, options);
}

// The error's message, which begins with its param; empty if there was no error.
inline std::string refusal_of(const host::Protocol& protocol, const std::string& body,
                              const host::ApiOptions& options = {}) {
  try {
    protocol.parse(body, {}, options);
  } catch (const host::ApiError& error) {
    CHECK(error.status() / 100 == 4);
    CHECK(std::string(error.what()).starts_with(error.param()));
    return error.what();
  }
  return {};
}

// `base` with one member replaced; null removes it.
inline std::string refusal_with(const host::Protocol& protocol, Json base, const char* member,
                                const Json& value, const host::ApiOptions& options = {}) {
  base[member] = value;
  return refusal_of(protocol, base.dump(), options);
}

struct Record {
  std::string event;  // empty: it has no name
  Json data;
};

// The records of a stream; comments are skipped. Fails for anything that is no whole record.
inline std::vector<Record> records_of(const std::string& bytes) {
  std::vector<Record> records;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t end = bytes.find("\n\n", at);
    REQUIRE(end != bytes.npos);
    std::string text = bytes.substr(at, end - at);
    at = end + 2;
    if (text.starts_with(":")) continue;
    Record record;
    if (text.starts_with("event: ")) {
      const std::size_t line = text.find('\n');
      REQUIRE(line != text.npos);
      record.event = text.substr(7, line - 7);
      text.erase(0, line + 1);
    }
    REQUIRE(text.starts_with("data: "));
    REQUIRE(text.find('\n') == text.npos);
    record.data = text == "data: [DONE]" ? Json("[DONE]") : Json::parse(text.substr(6));
    records.push_back(std::move(record));
  }
  return records;
}

// What happens to one choice of a reply, in order.
struct Told {
  uint32_t choice = 0;
  ChatEvent event{};
  std::optional<host::ApiTokenProbability> probability{};  // before the event
};

inline ChatEvent text(std::string piece) {
  return {.kind = ChatEvent::kText, .text = std::move(piece)};
}
inline ChatEvent reasoning(std::string piece) {
  return {.kind = ChatEvent::kReasoning, .text = std::move(piece)};
}
inline ChatEvent tool_begin(uint32_t call, std::string name) {
  return {.kind = ChatEvent::kToolBegin, .call = call, .text = std::move(name)};
}
inline ChatEvent tool_arguments(uint32_t call, std::string piece) {
  return {.kind = ChatEvent::kToolArguments, .call = call, .text = std::move(piece)};
}
inline ChatEvent tool_end(uint32_t call, bool unfinished = false) {
  return {.kind = ChatEvent::kToolEnd, .call = call, .unfinished = unfinished};
}

struct Story {
  std::vector<Told> told;
  std::map<uint32_t, host::ApiFinish> finishes = {{0, {}}};
  host::ApiUsage usage{
      .prompt_tokens = 20, .cached_tokens = 12, .generated_tokens = 7, .reasoning_tokens = 3};
  Json frt = {{"prefix_action", "restore"}};

  Story() = default;
  Story(std::vector<ChatEvent> events, host::ApiFinish finish = {}) : finishes{{0, finish}} {
    for (ChatEvent& event : events) told.push_back({.event = std::move(event)});
  }
};

// The bytes of a reply, all in one.
inline std::string reply_of(const host::Protocol& protocol, const host::ApiCall& call,
                            const Story& story) {
  const auto writer = protocol.reply(call, {.id = "0af1", .created = 1700000000, .model = "frt"});
  std::string bytes = writer->start(
      {.prompt_tokens = story.usage.prompt_tokens, .cached_tokens = story.usage.cached_tokens});
  for (const Told& told : story.told) {
    if (told.probability) writer->log_probability(told.choice, *told.probability);
    bytes += writer->event(told.choice, told.event);
  }
  for (const auto& [choice, finish] : story.finishes) bytes += writer->finish(choice, finish);
  return bytes + writer->end(story.usage, story.frt);
}

inline Json whole_reply(const host::Protocol& protocol, host::ApiCall call, const Story& story) {
  call.stream = false;
  return Json::parse(reply_of(protocol, call, story));
}

inline std::vector<Record> streamed_reply(const host::Protocol& protocol, host::ApiCall call,
                                          const Story& story) {
  call.stream = true;
  return records_of(reply_of(protocol, call, story));
}

}  // namespace frt::test
