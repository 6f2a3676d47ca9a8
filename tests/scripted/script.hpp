// SPDX-License-Identifier: Apache-2.0
// script.hpp - what the scripted model says. test.scripted is a language model for tests of hosts:
// it has slots, batches, capsules and forks like any other, and writes text that a script gives.
//
//   [[model]]
//   name = "agent"
//   plugin = "test.scripted"
//   checkpoint = "synthetic:none"
//   device = "cpu"
//   options = { script = "script.json", slots = 4 }    # or the JSON itself, if it begins with {
//
// The script is JSON; the first reply whose `when` holds is given, and where none does, or without
// a script, the last message is echoed ("echo: ..."):
//
//   {"replies": [
//     {"when": {"last": "...",       the last user or tool message has this text in it
//               "prompt": "...",     the whole prompt has
//               "turn": 2,           so many assistant messages came before; from 0
//               "tools": true,       the prompt has tools
//               "thinking": true},   the answer begins with reasoning
//      "reasoning": "...",           left out where the prompt wants none
//      "content": "...",
//      "calls": [{"name": "...", "arguments": {...}}, ...],
//      "raw": "...",                 instead of these three: exactly this text
//      "endless": true,              what is said is said again for ever
//      "token_delay_us": 500,        before each token; the option token_delay_us if missing
//      "fault": {"after": 3,         when so many tokens were written (1 or more) ...
//                "kind": "error",    ... the next step fails with FRT_ERR_DEVICE, or
//                "kind": "stall", "seconds": 2,    ... a step takes so long,
//                "times": 1}},       ... the first so many times; always if missing
//     ...]}
//
// What is said is a function of the tokens in the slot alone: prompts in Qwen3.6's conversation
// format (its tools and reasoning, too), one token per byte, and <|im_start|>, <|im_end|>,
// <|endoftext|>. So the reply goes on exactly behind a capsule, a fork, a prompt that is read
// again. For a prompt without a conversation the reply begins behind what was read last. The text
// is drawn with a probability of 1 at any temperature and penalty; a mask is obeyed.
#pragma once

#include <frt/io/json.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace scripted {

inline constexpr int32_t kTurnStart = 256, kTurnEnd = 257, kTextEnd = 258;
inline constexpr uint32_t kVocabulary = 259;

// What a step writes for one sequence.
struct Next {
  int32_t token = kTextEnd;
  uint64_t delay_us = 0;
  bool fails = false;
  bool stalls = false;
};

class Script {
 public:
  // `text`: JSON, or the path of a file of it; empty: echo only. FRT_ERR_FORMAT with the place.
  Script(const std::string& text, uint64_t token_delay_us);

  // The token behind `history`, whose first `prompt` tokens were read. `generated`: the last of
  // them was written by the model; only then faults strike.  [any]
  Next next(std::span<const int32_t> history, std::size_t prompt, bool generated) const;

 private:
  struct Reply {
    std::string last, prompt;  // empty: any
    std::optional<uint64_t> turn;
    std::optional<bool> tools, thinking;
    std::string with_reasoning, without;
    bool endless = false;
    uint64_t delay_us = 0;
    uint64_t fault_after = 0;  // 0: none
    uint64_t fault_times = UINT64_MAX, stall_us = 0;
    mutable std::atomic<uint64_t> struck = 0;
  };
  struct Asked;

  static Asked read_prompt(std::span<const int32_t> history, std::size_t prompt);
  void add(const frt::io::Json& entry, const std::string& where, uint64_t token_delay_us);
  const Reply* find(const Asked& asked) const;

  std::deque<Reply> replies_;
  uint64_t token_delay_us_;
};

}  // namespace scripted
