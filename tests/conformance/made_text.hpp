// SPDX-License-Identifier: Apache-2.0
// made_text.hpp - the text tables of a model that was made: by the host's typed view, and raw,
// where a case asks which code a table returns.
#pragma once

#include <cstdint>
#include <frt/sender.hpp>
#include <string>
#include <vector>

#include "lm/text_model.hpp"
#include "made_model.hpp"
#include "raw_model.hpp"

namespace frt::conformance {

// A flag that no version has: the last to get a name.
inline constexpr uint32_t kUnknownFlag = 1u << 31;

// What a function that sends to a sink answered.
struct Reply {
  frt_status status = FRT_OK;
  frt_error error{};
  std::string sent;
  uint64_t calls = 0;          // of the sink
  frt_status answer = FRT_OK;  // of the sink

  static frt_status take(void* user, const void* data, uint64_t bytes) noexcept {
    auto& reply = *static_cast<Reply*>(user);
    ++reply.calls;
    if (reply.answer != FRT_OK) return reply.answer;
    return guard(nullptr, [&] {
      if (bytes > 0) reply.sent.append(static_cast<const char*>(data), bytes);
    });
  }
};

// `call(reply)` calls the function with Reply::take, &reply and &reply.error. `answer`: of the
// sink.
template <class Call>
Reply asked(const std::string& sender, const char* function, Call&& call,
            frt_status answer = FRT_OK) {
  Reply reply;
  reply.answer = answer;
  reply.status = contain(sender, function, [&] { return call(reply); });
  return reply;
}

// Throws FRT_ERR_MISMATCH unless the function refused, in words; `wanted`: with this code, FRT_OK:
// with any. `what` is the call as a sentence begins: "decode of id -1".
inline void require_refusal(const Reply& reply, const std::string& what,
                            frt_status wanted = FRT_OK) {
  const bool right = wanted == FRT_OK ? reply.status != FRT_OK : reply.status == wanted;
  if (!right) {
    throw Error(FRT_ERR_MISMATCH,
                what + " returns " + status_name(reply.status) + ", it must be " +
                    (wanted == FRT_OK ? "an error" : std::string(status_name(wanted))));
  }
  if (!has_words(reply.error)) {
    throw Error(FRT_ERR_MISMATCH, what + " returns " + status_name(reply.status) +
                                      " without a message; say in frt_error what is wrong");
  }
}

// A model with a tokenizer; throws Skip for another.
class MadeText {
 public:
  explicit MadeText(const Subject& subject);

  const host::TextModel& model() const { return model_; }
  const std::string& sender() const { return model_.sender(); }
  // By the raw table.
  Reply encode(const std::string& text, const frt_encode_params& params,
               frt_status answer = FRT_OK) const;
  Reply decode(const std::vector<int32_t>& ids, frt_status answer = FRT_OK,
               uint32_t flags = 0) const;
  Reply token_bytes(int32_t id, uint32_t& flags) const;
  // The ids of a plain text that goes on.
  std::vector<int32_t> plain_ids(const std::string& text) const {
    return model_.encode_text(text, FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES, 0);
  }
  // Ids whose token_bytes says FRT_TOKEN_CONTROL, with their texts; none without token_bytes.
  struct Control {
    int32_t id;
    std::string text;
  };
  std::vector<Control> control_tokens() const;

 private:
  Made made_;
  host::TextModel model_;
};

}  // namespace frt::conformance
