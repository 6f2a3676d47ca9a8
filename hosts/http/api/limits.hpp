// SPDX-License-Identifier: Apache-2.0
// limits.hpp - how large a request may be, part by part. What is larger is refused with 400 (the
// body: 413) naming the field and the limit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace frt::host {

// Bytes of a conversation's name (ApiCall::session).
inline constexpr std::size_t kLongestSession = 512;

struct ApiLimits {
  std::size_t body = std::size_t{16} << 20;  // bytes of JSON text
  // Of nested arrays and objects. 64 would do for what agents write themselves. But the arguments
  // of a call, which a chat format lets a model write 128 deep, come back in each later request of
  // /v1/messages as a part of its body: a history that is refused ends the conversation.
  std::size_t depth = 160;
  std::size_t values = std::size_t{1} << 20;
  std::size_t messages = 4096;
  std::size_t parts = 4096;  // of one content
  std::size_t tools = 512;
  std::size_t schema = std::size_t{256} << 10;  // bytes of one schema
  std::size_t schema_depth = 32;
  std::size_t choice_texts = 4096;  // that an answer may be one of
  std::size_t stops = 16;
  std::size_t stop_bytes = 256;  // of one stop string
  std::size_t prompts = 32;      // of /v1/completions
  uint32_t choices = 8;          // answers to one prompt
  uint32_t best_of = 20;         // of which these are the best
  uint64_t max_tokens = 32768;   // a request for more gets as many
  uint32_t top_log_probabilities = 20;
  std::size_t biases = 1024;  // tokens of logit_bias
};

}  // namespace frt::host
