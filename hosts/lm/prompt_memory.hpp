// SPDX-License-Identifier: Apache-2.0
// prompt_memory.hpp - prompts of conversations and their tokens, so that of an agent's next request
// only what follows the part already known is tokenized.
//
// Two prompts that begin alike have the same tokens up to the last border in that part
// (FRT_TOKEN_BORDER): the tokens in front of it are taken from the earlier prompt, and the text
// from it on is tokenized. A model without borders is always asked for all of it.
//
// Each owner's prompts are known to that owner alone: no one can tell by the time of a request what
// another has sent.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lm/text_model.hpp"

namespace frt::host {

class PromptMemory {
 public:
  static constexpr std::size_t kMostOfOwner = 32;  // prompts; beyond that its oldest is forgotten

  // `model` outlives this object. `most_bytes`: of all prompts together; beyond that the oldest is
  // forgotten, and a prompt of more than a quarter of it is not remembered.  [setup]
  explicit PromptMemory(const TextModel& model, std::size_t most_bytes = std::size_t{64} << 20);

  // What model.encode_prompt(prompt, max_tokens) returns or throws.  [any]
  std::vector<int32_t> encode(const std::string& owner, const ChatPrompt& prompt,
                              uint64_t max_tokens);

  struct Counts {
    uint64_t prompts = 0;       // remembered now
    uint64_t bytes = 0;         // that they take
    uint64_t known_tokens = 0;  // taken from an earlier prompt, ever
    uint64_t new_tokens = 0;    // tokenized, ever
  };
  Counts counts() const;  // [any]

 private:
  struct Border {
    std::size_t begin = 0, end = 0;  // bytes of the text
    std::size_t index = 0;           // of the token
  };
  struct Known {
    std::string owner;
    ChatPrompt prompt;
    std::vector<int32_t> ids;
    std::vector<Border> borders;

    std::size_t bytes() const;
  };
  struct Literal {
    int32_t id = -1;
    std::string bytes;
  };
  struct Start {
    std::shared_ptr<const Known> known;  // null: nothing is known
    Border border;                       // the last one in common
    bool covers = false;                 // all borders of `known` are in common
  };

  Start start_of(const std::string& owner, const ChatPrompt& prompt) const;
  bool find_borders(Known& known) const;
  std::vector<int32_t> continued(const Start& start, const ChatPrompt& prompt,
                                 uint64_t max_tokens) const;
  // With `mutex_` held.
  using Place = std::list<std::shared_ptr<const Known>>::iterator;
  void remember(std::shared_ptr<const Known> known, const Start& start);
  void forget(Place place);

  const TextModel& model_;
  const std::size_t most_bytes_;
  std::vector<Literal> literals_;  // of the borders

  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const Known>> known_;  // the latest first
  Counts counts_;
};

}  // namespace frt::host
