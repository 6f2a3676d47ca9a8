// SPDX-License-Identifier: Apache-2.0
// writer.hpp - one reply in one protocol: what was generated, as bytes for the wire.
//
// A streamed reply is a sequence of whole server-sent events; every member returns those to be sent
// now, perhaps none. A reply that is not streamed comes whole from end(), and the other members
// return nothing. Both are made of the same events and agree to the byte in ids and texts.
//
// Order of calls: start(), then for each choice event() and log_probability() in any mixture and
// finish() once, then end(). error() may replace whatever is left. heartbeat() at any time between
// start() and the last call.
//
// Texts may be any bytes; what is no UTF-8 becomes U+FFFD. One thread at a time, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/api/error.hpp"
#include "lm/chat/event.hpp"
#include "lm/finish.hpp"

namespace frt::host {

struct ApiUsage {
  uint64_t prompt_tokens = 0;     // cached ones included
  uint64_t cached_tokens = 0;     // of the prompt, not computed again
  uint64_t generated_tokens = 0;  // of all choices, reasoning included
  uint64_t reasoning_tokens = 0;
};

// One token and its alternatives, natural logarithms.
struct ApiTokenProbability {
  std::string bytes;                                 // what the token adds to the text
  std::optional<float> log_probability;              // absent: the first token of an echoed prompt
  std::vector<std::pair<std::string, float>> top{};  // most likely first
};

// Why a choice ended.
struct ApiFinish {
  Finish finish = Finish::kStop;
  std::string stop_string{};  // the one of ApiCall::stop that was found; empty: another reason
};

class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;

  // `usage`: what is known by now of the prompt.
  virtual std::string start(const ApiUsage& usage) = 0;
  // Of choice `choice`. /v1/completions takes kText only; an echoed prompt is its first event.
  // Calls that the client ruled out (tool_choice "none", parallel_tool_calls false) are left out.
  virtual std::string event(uint32_t choice, const ChatEvent& event) = 0;
  // Goes out with the choice's next event; ignored if the call did not ask for it.
  virtual void log_probability(uint32_t choice, ApiTokenProbability token) = 0;
  virtual std::string finish(uint32_t choice, const ApiFinish& reason) = 0;
  // The end of the stream, or the whole body. `frt`: the object that becomes the reply's "frt"
  // member (serving of the prefix, times); null: none.
  virtual std::string end(const ApiUsage& usage, const nlohmann::ordered_json& frt) = 0;
  // The reply fails: the stream's last event, or the whole body.
  virtual std::string error(const ApiError& error) = 0;
  // What keeps the protocol's clients from giving up on a silent stream.
  virtual std::string heartbeat() = 0;
};

}  // namespace frt::host
