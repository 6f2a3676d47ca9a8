// SPDX-License-Identifier: Apache-2.0
// Answers that follow a grammar. The mask of a token is made when the token before it is known,
// while the device works for others; the first one while the grammar's prompt waits for its last
// chunk. The masks behind drafts are made in their round, when the drafts are known: the device
// waits.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "lm/engine/thread.hpp"

namespace frt::host {
namespace {

bool any_of(std::span<const uint32_t> mask) {
  return std::ranges::any_of(mask, [](uint32_t word) { return word != 0; });
}

}  // namespace

void Engine::Thread::poll_grammars() {
  for (const auto& request : live_) {
    if (!request->compiling || !request->asked().grammar->over()) continue;
    request->compiling = false;
    --compiling_;
    const GrammarTicket& ticket = *request->asked().grammar;
    if (request->unfinished == 0) continue;
    if (ticket.status() == FRT_OK) {
      request->listener().on_grammar();
    } else {
      fail(*request, ticket.status(), ticket.message());
    }
  }
}

// The last chunk samples the first token.
bool Engine::Thread::waits_for_grammar(const Choice& choice) const {
  return choice.request->compiling && next_end(choice) == choice.request->asked().prompt.size();
}

// If it throws, the choice is as it was.
void Engine::Thread::begin_grammar(Choice& choice) {
  const EngineRequest& asked = choice.request->asked();
  if (!asked.grammar || choice.matcher || choice.limit == 0) return;
  auto matcher = asked.grammar->grammar()->matcher();
  std::vector<uint32_t> mask(model_.info().mask_words);
  if (!fill_mask(asked, *matcher, mask, choice.result.generated)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the grammar lets an answer be empty and nothing else");
  }
  choice.matcher = std::move(matcher);
  choice.mask = std::move(mask);
}

// False: the request has failed.
bool Engine::Thread::follow_grammar(Choice& choice, int32_t token) {
  frt_error error{};
  const frt_status status = guard(&error, [&] {
    if (choice.matcher->accept(token)) return follow_scout(choice, token);
    throw Error(FRT_ERR_INTERNAL, "model '" + model_.name() + "' sampled token " +
                                      std::to_string(token) + ", which its mask rules out");
  });
  if (status == FRT_OK) return true;
  met(choice.request, status, error.message);
  return false;
}

// How many of the drafts may be fed; the masks behind them. A draft that ends the text is never
// accepted (frt/role/lm.h), and behind one that completes it nothing comes.
uint32_t Engine::Thread::mask_drafts(Choice& choice, std::span<const int32_t> drafts,
                                     std::span<uint32_t> masks) {
  const EngineRequest& asked = choice.request->asked();
  const std::size_t words = model_.info().mask_words;
  uint32_t fed = 0;
  const frt_status status = guard(nullptr, [&] {
    if (!choice.scout) {
      choice.scout = choice.matcher->fork();
      choice.scouted.reserve(model_.info().max_drafts);
    }
    for (const int32_t draft : drafts) {
      const bool known = draft >= 0 && static_cast<uint32_t>(draft) < model_.info().vocabulary;
      if (!known || std::ranges::count(asked.stop_ids, draft) > 0) return;
      if (!choice.scout->accept(draft)) return;
      choice.scouted.push_back(draft);
      const std::span<uint32_t> mask = masks.subspan(fed * words, words);
      if (!fill_mask(asked, *choice.scout, mask, choice.result.generated + fed + 1)) return;
      ++fed;
    }
  });
  if (status != FRT_OK) drop_scout(choice);
  return fed;
}

// Behind a token of the text.
void Engine::Thread::follow_scout(Choice& choice, int32_t token) {
  if (!choice.scout) return;
  if (!choice.scouted.empty() && choice.scouted.front() == token) {
    choice.scouted.erase(choice.scouted.begin());
    return;
  }
  bool follows = false;
  guard(nullptr, [&] {
    if (!choice.scouted.empty()) {
      choice.scout->rollback(static_cast<uint32_t>(choice.scouted.size()));
      choice.scouted.clear();
    }
    follows = choice.scout->accept(token);
  });
  if (!follows) drop_scout(choice);
}

// No mask behind a draft can be had, or not in time: the choice has no drafts from now on.
void Engine::Thread::drop_scout(Choice& choice) {
  choice.scout.reset();
  choice.scouted.clear();
  choice.drafts_masked = false;
}

// False: the answer is complete and nothing may follow it, or the request has failed.
bool Engine::Thread::lead_on(Choice& choice) {
  bool more = false;
  frt_error error{};
  const frt_status status = guard(&error, [&] {
    more =
        fill_mask(choice.request->asked(), *choice.matcher, choice.mask, choice.result.generated);
  });
  if (status != FRT_OK) met(choice.request, status, error.message);
  return more;
}

// Whether the answer, cut at its limit, is complete and nothing could have followed it. Only a text
// that may end here is worth a mask; one that cannot be made says nothing against the text.
bool Engine::Thread::ends_at_limit(Choice& choice) {
  bool more = true;
  guard(nullptr, [&] {
    if (choice.matcher->complete()) {
      more =
          fill_mask(choice.request->asked(), *choice.matcher, choice.mask, choice.result.generated);
    }
  });
  return !more;
}

// False: the answer of `generated` tokens is complete and nothing may follow it.
bool Engine::Thread::fill_mask(const EngineRequest& asked, GrammarMatcher& matcher,
                               std::span<uint32_t> mask, uint64_t generated) {
  const auto began = Clock::now();
  const bool more = matcher.fill(mask);
  if (more) {
    // Where the answer may end, and is long enough, a token that ends it may come; nowhere else, or
    // the text would end where the grammar does not.
    const bool may_end = matcher.complete() && generated >= asked.min_new;
    for (const int32_t id : asked.stop_ids) {
      const uint32_t bit = 1U << (id % 32);
      uint32_t& word = mask[static_cast<std::size_t>(id) / 32];
      word = may_end ? word | bit : word & ~bit;
    }
    if (!any_of(mask)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "the grammar continues only with stop tokens of the request");
    }
  }
  meter_.mask.add(std::chrono::duration<double>(Clock::now() - began).count());
  return more;
}

}  // namespace frt::host
