// SPDX-License-Identifier: Apache-2.0
// prompt.hpp - the text a policy reads, character for character as its training made it.
//
//   clean(task)   strip, then '_' and newline to a space
//   with state    "Task: {task}, State: {bins};\nAction: "      256 bins of the normalised state
//   without       the task, and a newline that is encoded by itself
//
// The tag of a guided branch has no single place in the wild, so it is a template:
//
//   openpi_clean   task + "\n" + tag as the task, before cleaning: the newline becomes a space
//   raw_newline    the same behind cleaning: the newline stays
//   before_action  "Task: {task}, State: {bins};\n{tag}\nAction: "; without state as raw_newline
//   anything else  a text with {task}, {state} (the bins) and {tag}; a branch without a tag drops
//                  the line that holds {tag}, or the placeholder where it shares a line
#pragma once

#include <cstdint>
#include <frt/models/sentencepiece.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::pi05 {

std::string clean_task(std::string_view task);

// numpy's digitize(state, linspace(-1, 1, 257)[:-1]) - 1: -1 below -1, 255 from 127/128 on.
std::int32_t state_bin(double value);

struct PromptParts {
  std::string_view task;
  std::span<const double> state;  // normalised; only read with `with_state`
  bool with_state = false;
  std::string_view tag;  // empty: a branch without one
  std::string_view form = "openpi_clean";
};

struct Prompt {
  std::string text;
  bool newline = false;  // a newline follows, encoded by itself
};

Prompt build_prompt(const PromptParts& parts);

// BOS, the text, the newline. FRT_ERR_OUT_OF_RANGE for a text of more than `max_tokens` (0: no
// limit), without encoding one that is much too long.
std::vector<std::int32_t> encode_prompt(const models::SentencePiece& tokenizer,
                                        const Prompt& prompt, std::size_t max_tokens = 0);

}  // namespace frt::pi05
