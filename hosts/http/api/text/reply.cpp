// SPDX-License-Identifier: Apache-2.0
// A stream's pieces have the form of the whole reply. "text_offset" counts characters from the
// beginning of a choice's text, an echoed prompt included.
#include "http/api/text/reply.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "http/api/reply/base.hpp"

namespace frt::host::api {

namespace {

uint64_t characters(const std::string& bytes) {
  uint64_t count = 0;
  for (const char c : bytes) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

class TextReply : public ReplyBase {
 public:
  using ReplyBase::ReplyBase;

  std::string start(const ApiUsage&) override { return {}; }

  std::string event(uint32_t choice, const ChatEvent& event) override {
    if (event.kind != ChatEvent::kText) return {};
    if (stream()) return sse_record(record(Json::array({piece(choice, event.text, {})})));
    choices_[choice].text += lossy_text(event.text);
    return {};
  }

  std::string finish(uint32_t choice, const ApiFinish& reason) override {
    Choice& state = choices_[choice];
    state.finish = is_cut(reason.finish) ? "length" : "stop";
    if (!stream()) return {};
    Json last = record(Json::array({piece(choice, "", state.finish)}));
    if (++finished_ < total()) return sse_record(last);
    last_ = std::move(last);
    return {};
  }

  std::string end(const ApiUsage& usage, const Json& frt) override {
    const auto with_frt = [&](Json json) {
      if (!frt.is_null()) json["frt"] = frt;
      return json;
    };
    if (!stream()) {
      Json list = Json::array();
      for (uint32_t i = 0; i < total(); ++i) {
        Choice& state = choices_[i];
        list.push_back(piece(i, state.text, state.finish));
      }
      Json body = record(std::move(list));
      body["usage"] = completion_usage(usage);
      return json_line(with_frt(std::move(body)));
    }
    std::string out;
    if (call().include_usage) {
      Json counts = record(Json::array());
      counts["usage"] = completion_usage(usage);
      out = sse_record(last_) + sse_record(with_frt(std::move(counts)));
    } else {
      out = sse_record(with_frt(std::move(last_)));
    }
    return out + "data: [DONE]\n\n";
  }

  std::string error(const ApiError& error) override {
    if (!stream()) return openai_error(error);
    return sse_record({{"error", openai_error_object(error)}});
  }

  std::string heartbeat() override { return stream() ? ": waiting\n\n" : ""; }

 private:
  struct Choice {
    std::string text;  // of a whole reply
    std::string finish;
    uint64_t offset = 0;
  };

  uint32_t total() const { return call().choices * static_cast<uint32_t>(call().prompts.size()); }

  // `choices`: an array. Json{one} would be that array under GCC and a copy of `one` under clang.
  Json record(Json choices) const {
    return {{"id", "cmpl-" + identity().id},
            {"object", "text_completion"},
            {"created", identity().created},
            {"model", identity().model},
            {"choices", std::move(choices)}};
  }

  Json piece(uint32_t choice, const std::string& text, const std::string& finish) {
    return {{"index", choice},
            {"text", text},
            {"logprobs", probabilities(choice)},
            {"finish_reason", finish.empty() ? Json() : Json(finish)}};
  }

  Json probabilities(uint32_t choice) {
    const std::vector<ApiTokenProbability> taken = take_probabilities(choice);
    if (taken.empty()) return {};
    Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
         offsets = Json::array();
    uint64_t& offset = choices_[choice].offset;
    for (const ApiTokenProbability& token : taken) {
      tokens.push_back(lossy_text(token.bytes));
      offsets.push_back(offset);
      offset += characters(token.bytes);
      values.push_back(token.log_probability ? Json(finite_logarithm(*token.log_probability))
                                             : Json());
      Json top = token.log_probability ? Json::object() : Json();
      // Of tokens with one text the likeliest; the one that was sampled is always there.
      for (const auto& [bytes, value] : token.top) {
        top.emplace(lossy_text(bytes), finite_logarithm(value));
      }
      if (token.log_probability && !token.top.empty()) {
        top.emplace(lossy_text(token.bytes), finite_logarithm(*token.log_probability));
      }
      tops.push_back(std::move(top));
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }

  std::map<uint32_t, Choice> choices_;
  uint32_t finished_ = 0;
  Json last_;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_text_reply(const ApiCall& call, ReplyIdentity identity) {
  return std::make_unique<TextReply>(call, std::move(identity));
}

}  // namespace frt::host::api
