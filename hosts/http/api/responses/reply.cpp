// SPDX-License-Identifier: Apache-2.0
// A stream: response.created, response.in_progress; for each item output_item.added, what its kind
// has in between, output_item.done; then response.completed, .incomplete or .failed with the whole
// response. One item is open at a time. The same items, ids included, are the whole reply's output.
//
//   reasoning         one part of the summary, in deltas
//   message           one part of output_text, in deltas
//   function_call     arguments in deltas
//   custom_tool_call  input in one delta
//
// The request's instructions and tools are not repeated: clients know them, and they are large.
#include "http/api/responses/reply.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "http/api/reply/base.hpp"
#include "http/api/request/tools.hpp"

namespace frt::host::api {

namespace {

Json usage_json(const ApiUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.generated_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens}};
}

// 0.7 as it was sent, not as the nearest float.
Json decimal(const std::optional<float>& value) {
  if (!value) return {};
  return std::round(static_cast<double>(*value) * 1e6) / 1e6;
}

Json choice_json(const ApiCall& call) {
  switch (call.tool_choice.mode) {
    case ApiToolChoice::kNone:
      return "none";
    case ApiToolChoice::kRequired:
      return "required";
    case ApiToolChoice::kNamed:
      return {{"type", "function"}, {"name", call.tool_choice.name}};
    case ApiToolChoice::kAuto:
      break;
  }
  return "auto";
}

// Codex gives up at some codes; these have it try again where that may help.
const char* failure_code(const ApiError& error) {
  switch (error.kind()) {
    case ApiErrorKind::kContextLength:
      return "context_length_exceeded";
    case ApiErrorKind::kRateLimit:
      return "rate_limit_exceeded";
    case ApiErrorKind::kInvalid:
      return "invalid_prompt";
    default:
      return "server_error";
  }
}

class ResponsesReply : public ReplyBase {
 public:
  using ReplyBase::ReplyBase;

  std::string start(const ApiUsage&) override {
    return joined({record("response.created", {{"response", response("in_progress")}}),
                   record("response.in_progress", {{"response", response("in_progress")}})});
  }

  std::string event(uint32_t, const ChatEvent& event) override {
    Json probabilities = probability_list(take_probabilities(0));
    if (!admits(event)) return {};
    switch (event.kind) {
      case ChatEvent::kReasoning:
        return joined({open_text("reasoning"), reasoning(event.text)});
      case ChatEvent::kText:
        return joined({open_text("message"), message(event.text, std::move(probabilities))});
      case ChatEvent::kToolBegin:
        return open_call(tool(event.text));
      case ChatEvent::kToolArguments:
        return arguments(event.text);
      case ChatEvent::kToolEnd:
        break;
    }
    return close(event.unfinished ? "incomplete" : "completed");
  }

  std::string finish(uint32_t, const ApiFinish& reason) override {
    cut_ = is_cut(reason.finish);
    return close(cut_ ? "incomplete" : "completed");
  }

  std::string end(const ApiUsage& usage, const Json& frt) override {
    const char* status = cut_ ? "incomplete" : "completed";
    Json whole = response(status);
    if (cut_) whole["incomplete_details"] = {{"reason", "max_output_tokens"}};
    whole["output"] = std::move(output_);
    whole["usage"] = usage_json(usage);
    if (!frt.is_null()) whole["frt"] = frt;
    if (!stream()) return json_line(whole);
    return record(cut_ ? "response.incomplete" : "response.completed",
                  {{"response", std::move(whole)}});
  }

  std::string error(const ApiError& error) override {
    if (!stream()) return openai_error(error);
    std::string out = close("incomplete");
    Json failed = response("failed");
    failed["error"] = {{"code", failure_code(error)}, {"message", error.what()}};
    failed["output"] = std::move(output_);
    return out + record("response.failed", {{"response", std::move(failed)}});
  }

  std::string heartbeat() override {
    return record("response.in_progress", {{"response", response("in_progress")}});
  }

 private:
  Json response(const char* status) const {
    const SamplingChoice& sampling = call().sampling;
    return {{"id", "resp_" + identity().id},
            {"object", "response"},
            {"created_at", identity().created},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", nullptr},
            {"max_output_tokens", call().max_tokens ? Json(*call().max_tokens) : Json()},
            {"model", identity().model},
            {"output", Json::array()},
            {"parallel_tool_calls", call().parallel_tool_calls},
            {"previous_response_id", nullptr},
            {"store", false},
            {"temperature", decimal(sampling.temperature)},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", choice_json(call())},
            {"tools", Json::array()},
            {"top_p", decimal(sampling.top_p)},
            {"truncation", "disabled"},
            {"usage", nullptr},
            {"metadata", Json::object()}};
  }

  std::string record(const char* type, Json members) {
    if (!stream()) return {};
    Json json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(members);
    return sse_record(type, json);
  }

  // About the open item.
  std::string item_record(const char* type, Json members = Json::object()) {
    if (!stream()) return {};
    Json json = {{"item_id", item_["id"]}, {"output_index", output_.size()}};
    json.update(members);
    return record(type, std::move(json));
  }

  std::string text_record(const char* type, Json members = Json::object()) {
    if (!stream()) return {};
    Json json = {{kind_ == "reasoning" ? "summary_index" : "content_index", 0}};
    json.update(members);
    return item_record(type, std::move(json));
  }

  Json part() const {
    if (kind_ == "reasoning") return {{"type", "summary_text"}, {"text", text_}};
    return {{"type", "output_text"},
            {"text", text_},
            {"annotations", Json::array()},
            {"logprobs", probabilities_}};
  }

  std::string added() {
    return record("response.output_item.added",
                  {{"output_index", output_.size()}, {"item", item_}});
  }

  // Begins an item of text, unless one of the kind is open.
  std::string open_text(const char* kind) {
    if (kind_ == kind) return {};
    std::string out = close("completed");
    kind_ = kind;
    if (kind_ == "reasoning") {
      item_ = {{"id", id("rs_", 0, output_.size())},
               {"type", "reasoning"},
               {"status", "in_progress"},
               {"summary", Json::array()}};
      return joined(
          {out, added(), text_record("response.reasoning_summary_part.added", {{"part", part()}})});
    }
    item_ = {{"id", id("msg_", 0, output_.size())},
             {"type", "message"},
             {"status", "in_progress"},
             {"role", "assistant"},
             {"content", Json::array()}};
    return joined({out, added(), text_record("response.content_part.added", {{"part", part()}})});
  }

  std::string reasoning(const std::string& piece) {
    text_ += lossy_text(piece);
    return text_record("response.reasoning_summary_text.delta", {{"delta", piece}});
  }

  std::string message(const std::string& piece, Json probabilities) {
    text_ += lossy_text(piece);
    for (const Json& entry : probabilities) probabilities_.push_back(entry);
    return text_record("response.output_text.delta",
                       {{"delta", piece}, {"logprobs", std::move(probabilities)}});
  }

  std::string open_call(const ApiTool& tool) {
    std::string out = close("completed");
    kind_ = tool.custom ? "custom_tool_call" : "function_call";
    item_ = {{"id", id(tool.custom ? "ctc_" : "fc_", 0, output_.size())},
             {"type", kind_},
             {"status", "in_progress"},
             {"call_id", id("call_", 0, output_.size())},
             {"name", tool.client_name},
             {tool.custom ? "input" : "arguments", ""}};
    if (!tool.space.empty()) item_["namespace"] = tool.space;
    return out + added();
  }

  std::string arguments(const std::string& piece) {
    if (kind_ != "function_call" && kind_ != "custom_tool_call") return {};
    text_ += lossy_text(piece);
    if (kind_ == "custom_tool_call") return {};
    return item_record("response.function_call_arguments.delta", {{"delta", piece}});
  }

  std::string close(const char* status) {
    if (kind_.empty()) return {};
    std::string out;
    item_["status"] = status;
    if (kind_ == "reasoning") {
      out = joined({text_record("response.reasoning_summary_text.done", {{"text", text_}}),
                    text_record("response.reasoning_summary_part.done", {{"part", part()}})});
      item_["summary"].push_back(part());
    } else if (kind_ == "message") {
      out = joined({text_record("response.output_text.done",
                                {{"text", text_}, {"logprobs", probabilities_}}),
                    text_record("response.content_part.done", {{"part", part()}})});
      item_["content"].push_back(part());
    } else if (kind_ == "function_call") {
      out = item_record("response.function_call_arguments.done",
                        {{"name", item_["name"]}, {"arguments", text_}});
      item_["arguments"] = text_;
    } else {
      const std::string input = custom_input(text_);
      out = joined({item_record("response.custom_tool_call_input.delta", {{"delta", input}}),
                    item_record("response.custom_tool_call_input.done", {{"input", input}})});
      item_["input"] = input;
    }
    out += record("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
    output_.push_back(std::move(item_));
    kind_.clear();
    text_.clear();
    probabilities_ = Json::array();
    return out;
  }

  uint64_t sequence_ = 0;
  bool cut_ = false;
  Json output_ = Json::array();  // items that are over
  // The open item; an empty kind: none.
  std::string kind_, text_;
  Json item_;
  Json probabilities_ = Json::array();
};

}  // namespace

std::unique_ptr<ReplyWriter> make_responses_reply(const ApiCall& call, ReplyIdentity identity) {
  return std::make_unique<ResponsesReply>(call, std::move(identity));
}

}  // namespace frt::host::api
