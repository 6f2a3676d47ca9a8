// SPDX-License-Identifier: Apache-2.0
// A stream: a chunk with the role, chunks with pieces, for each choice a chunk with its
// finish_reason, a chunk of usage if the client asked for one, [DONE]. The chunk with the last
// finish_reason waits for end(), because without a chunk of usage it carries the "frt" member. A
// tool call begins with id, name and arguments ""; then come pieces of arguments. The input of a
// custom tool comes in one piece.
#include "http/api/chat/reply.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "http/api/reply/base.hpp"
#include "http/api/request/tools.hpp"

namespace frt::host::api {

namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

Json probabilities_json(const std::vector<ApiTokenProbability>& tokens) {
  if (tokens.empty()) return {};
  return {{"content", probability_list(tokens)}, {"refusal", nullptr}};
}

class ChatReply : public ReplyBase {
 public:
  using ReplyBase::ReplyBase;

  std::string start(const ApiUsage&) override {
    if (!stream()) return {};
    std::string out;
    for (uint32_t i = 0; i < call().choices; ++i) {
      out += chunk(i, {{"role", "assistant"}, {"content", ""}});
    }
    return out;
  }

  std::string event(uint32_t choice, const ChatEvent& event) override {
    if (!admits(event)) return {};
    Choice& state = choices_[choice];
    switch (event.kind) {
      case ChatEvent::kReasoning:
        return text(choice, "reasoning_content", state.reasoning, event.text);
      case ChatEvent::kText:
        return text(choice, "content", state.content, event.text);
      case ChatEvent::kToolBegin:
        state.calls.push_back({tool(event.text), id("call_", choice, state.calls.size()), {}});
        return stream() ? piece(choice, call_json(state, "")) : "";
      case ChatEvent::kToolArguments:
        return arguments(choice, state, event.text);
      case ChatEvent::kToolEnd:
        break;
    }
    if (!stream() || state.calls.empty() || !state.calls.back().tool.custom) return {};
    return piece(choice, {{"index", state.calls.size() - 1},
                          {"custom", {{"input", custom_input(state.calls.back().arguments)}}}});
  }

  std::string finish(uint32_t choice, const ApiFinish& reason) override {
    Choice& state = choices_[choice];
    state.finish = is_cut(reason.finish) ? "length" : state.calls.empty() ? "stop" : "tool_calls";
    if (!stream()) return {};
    if (++finished_ < call().choices) return chunk(choice, Json::object(), state.finish);
    last_ = choice;
    return {};
  }

  std::string end(const ApiUsage& usage, const Json& frt) override {
    if (!stream()) return whole(usage, frt);
    const auto with_frt = [&](Json record) {
      if (!frt.is_null()) record["frt"] = frt;
      return sse_record(record);
    };
    Json last = chunk_json(last_, Json::object(), choices_[last_].finish);
    if (!call().include_usage) return with_frt(std::move(last)).append(kDone);
    Json record = head("chat.completion.chunk");
    record["choices"] = Json::array();
    record["usage"] = completion_usage(usage);
    return sse_record(last) + with_frt(std::move(record)).append(kDone);
  }

  std::string error(const ApiError& error) override {
    if (!stream()) return openai_error(error);
    return sse_record({{"error", openai_error_object(error)}});
  }

  std::string heartbeat() override { return stream() ? ": waiting\n\n" : ""; }

 private:
  struct Call {
    ApiTool tool;
    std::string id, arguments;
  };
  struct Choice {
    std::string content, reasoning;  // of a whole reply
    std::vector<Call> calls;
    std::string finish;
  };

  Json head(const char* object) const {
    return {{"id", "chatcmpl-" + identity().id},
            {"object", object},
            {"created", identity().created},
            {"model", identity().model}};
  }

  Json chunk_json(uint32_t choice, Json delta, const std::string& finish) {
    Json record = head("chat.completion.chunk");
    record["choices"] = Json::array({{{"index", choice},
                                      {"delta", std::move(delta)},
                                      {"logprobs", probabilities_json(take_probabilities(choice))},
                                      {"finish_reason", finish.empty() ? Json() : Json(finish)}}});
    if (call().include_usage) record["usage"] = nullptr;
    return record;
  }

  std::string chunk(uint32_t choice, Json delta, const std::string& finish = {}) {
    return sse_record(chunk_json(choice, std::move(delta), finish));
  }

  std::string piece(uint32_t choice, Json call) {
    return chunk(choice, {{"tool_calls", Json::array({std::move(call)})}});
  }

  std::string text(uint32_t choice, const char* field, std::string& whole,
                   const std::string& text) {
    if (stream()) return chunk(choice, {{field, text}});
    whole += lossy_text(text);
    return {};
  }

  std::string arguments(uint32_t choice, Choice& state, const std::string& text) {
    if (state.calls.empty()) return {};
    Call& call = state.calls.back();
    if (!stream() || call.tool.custom) {
      call.arguments += lossy_text(text);
      return {};
    }
    return piece(choice, {{"index", state.calls.size() - 1}, {"function", {{"arguments", text}}}});
  }

  // The newest call, as a delta begins it.
  static Json call_json(const Choice& state, const std::string& text) {
    Json json = {{"index", state.calls.size() - 1}};
    json.update(whole_call(state.calls.back(), text));
    return json;
  }

  static Json whole_call(const Call& call, const std::string& text) {
    const bool custom = call.tool.custom;
    const char* type = custom ? "custom" : "function";
    return {{"id", call.id},
            {"type", type},
            {type, {{"name", call.tool.client_name}, {custom ? "input" : "arguments", text}}}};
  }

  std::string whole(const ApiUsage& usage, const Json& frt) {
    Json list = Json::array();
    for (uint32_t i = 0; i < call().choices; ++i) {
      Choice& state = choices_[i];
      Json calls = Json::array();
      for (const Call& call : state.calls) {
        calls.push_back(
            whole_call(call, call.tool.custom ? custom_input(call.arguments) : call.arguments));
      }
      const bool only_calls = state.content.empty() && !calls.empty();
      Json message = {{"role", "assistant"},
                      {"content", only_calls ? Json() : Json(std::move(state.content))},
                      {"refusal", nullptr}};
      if (!state.reasoning.empty()) message["reasoning_content"] = std::move(state.reasoning);
      if (!calls.empty()) message["tool_calls"] = std::move(calls);
      list.push_back({{"index", i},
                      {"message", std::move(message)},
                      {"logprobs", probabilities_json(take_probabilities(i))},
                      {"finish_reason", state.finish}});
    }
    Json body = head("chat.completion");
    body["choices"] = std::move(list);
    body["usage"] = completion_usage(usage);
    if (!frt.is_null()) body["frt"] = frt;
    return json_line(body);
  }

  std::map<uint32_t, Choice> choices_;
  uint32_t finished_ = 0, last_ = 0;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_chat_reply(const ApiCall& call, ReplyIdentity identity) {
  return std::make_unique<ChatReply>(call, std::move(identity));
}

}  // namespace frt::host::api
