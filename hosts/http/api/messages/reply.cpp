// SPDX-License-Identifier: Apache-2.0
// A stream: message_start; for each block content_block_start, deltas, content_block_stop;
// message_delta with the reason and the usage; message_stop. One block is open at a time. A block
// of reasoning ends with a signature, which clients demand and send back; nobody checks it here.
// "input_tokens" leaves out what was cached.
#include "http/api/messages/reply.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <string>
#include <utility>

#include "http/api/reply/base.hpp"

namespace frt::host::api {

namespace {

constexpr const char* kSignature = "ZnJ0";

Json usage_json(const ApiUsage& usage) {
  return {
      {"input_tokens", usage.prompt_tokens - std::min(usage.prompt_tokens, usage.cached_tokens)},
      {"cache_creation_input_tokens", 0},
      {"cache_read_input_tokens", usage.cached_tokens},
      {"output_tokens", usage.generated_tokens}};
}

// What the pieces of a call's arguments are together.
Json parsed_arguments(const std::string& text) {
  try {
    Json value = io::parse_json(text, "arguments");
    if (value.is_object()) return value;
  } catch (const Error&) {
    // Only a model's plugin that breaks its rules brings this about.
  }
  return Json::object();
}

class MessagesReply : public ReplyBase {
 public:
  using ReplyBase::ReplyBase;

  std::string start(const ApiUsage& usage) override {
    if (!stream()) return {};
    Json message = head();
    message["usage"] = usage_json(usage);
    return record("message_start", {{"message", std::move(message)}});
  }

  std::string event(uint32_t, const ChatEvent& event) override {
    if (!admits(event)) return {};
    switch (event.kind) {
      case ChatEvent::kReasoning:
        return joined(
            {open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}),
             grow("thinking_delta", "thinking", event.text)});
      case ChatEvent::kText:
        return joined({open("text", {{"type", "text"}, {"text", ""}}),
                       grow("text_delta", "text", event.text)});
      case ChatEvent::kToolBegin:
        return joined({close(), open("tool_use", {{"type", "tool_use"},
                                                  {"id", id("toolu_", 0, calls_++)},
                                                  {"name", tool(event.text).client_name},
                                                  {"input", Json::object()}})});
      case ChatEvent::kToolArguments:
        return open_ == "tool_use" ? grow("input_json_delta", "partial_json", event.text) : "";
      case ChatEvent::kToolEnd:
        break;
    }
    return close();
  }

  std::string finish(uint32_t, const ApiFinish& reason) override {
    stop_ = {{"stop_reason", reason.finish == Finish::kContext ? "model_context_window_exceeded"
                             : is_cut(reason.finish)           ? "max_tokens"
                             : !reason.stop_string.empty()     ? "stop_sequence"
                             : calls_ > 0                      ? "tool_use"
                                                               : "end_turn"},
             {"stop_sequence",
              reason.stop_string.empty() ? Json() : Json(lossy_text(reason.stop_string))}};
    return close();
  }

  std::string end(const ApiUsage& usage, const Json& frt) override {
    if (stream()) {
      Json delta = {{"delta", stop_}, {"usage", usage_json(usage)}};
      if (!frt.is_null()) delta["frt"] = frt;
      return record("message_delta", std::move(delta)) + record("message_stop", Json::object());
    }
    Json message = head();
    message["content"] = std::move(content_);
    message.update(stop_);
    message["usage"] = usage_json(usage);
    if (!frt.is_null()) message["frt"] = frt;
    return json_line(message);
  }

  std::string error(const ApiError& error) override {
    if (!stream()) return anthropic_error(error);
    return sse_record("error", anthropic_error_object(error));
  }

  std::string heartbeat() override { return stream() ? record("ping", Json::object()) : ""; }

 private:
  Json head() const {
    return {{"id", "msg_" + identity().id}, {"type", "message"},        {"role", "assistant"},
            {"model", identity().model},    {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  static std::string record(const char* type, Json members) {
    Json json = {{"type", type}};
    json.update(members);
    return sse_record(type, json);
  }

  // Begins a block, unless one of the type is open.
  std::string open(const char* type, Json block) {
    if (open_ == type) return {};
    std::string out = close();
    open_ = type;
    if (stream()) {
      return out + record("content_block_start",
                          {{"index", index_}, {"content_block", std::move(block)}});
    }
    content_.push_back(std::move(block));
    return out;
  }

  std::string grow(const char* type, const char* field, const std::string& piece) {
    if (stream()) {
      return record("content_block_delta",
                    {{"index", index_}, {"delta", {{"type", type}, {field, piece}}}});
    }
    text_ += lossy_text(piece);
    return {};
  }

  std::string close() {
    if (open_.empty()) return {};
    const std::string type = std::exchange(open_, {});
    const uint64_t index = index_++;
    if (stream()) {
      std::string out;
      if (type == "thinking") {
        out = record("content_block_delta",
                     {{"index", index},
                      {"delta", {{"type", "signature_delta"}, {"signature", kSignature}}}});
      }
      return out + record("content_block_stop", {{"index", index}});
    }
    Json& block = content_.back();
    std::string text = std::exchange(text_, {});
    if (type == "tool_use") {
      block["input"] = parsed_arguments(text);
    } else {
      block[type] = std::move(text);
      if (type == "thinking") block["signature"] = kSignature;
    }
    return {};
  }

  std::string open_;  // type of the open block; empty: none
  uint64_t index_ = 0;
  std::size_t calls_ = 0;
  Json stop_ = {{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
  // Of a whole reply: its blocks, and the text of the open one.
  Json content_ = Json::array();
  std::string text_;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_messages_reply(const ApiCall& call, ReplyIdentity identity) {
  return std::make_unique<MessagesReply>(call, std::move(identity));
}

}  // namespace frt::host::api
