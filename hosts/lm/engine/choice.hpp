// SPDX-License-Identifier: Apache-2.0
// choice.hpp - one answer that is being made, and the request it belongs to. Used by the engine's
// thread alone.
//
//   kWaiting --a slot, pages--> kPrefill --last chunk submitted--> kDecode --> kOver
//                                  |  ^                              |  ^
//                    pages run out v  | pages again                  v  |
//                                  kPreempted <----------------------'--'
//
// A choice that is to end while steps of it are in flight is `ending` until they are over. Choices
// behind the first wait until that one is about to read the last chunk of the prompt: its state is
// copied then, and each of them reads the last chunk itself, so that it samples its own first
// token.
//
// A choice whose likeliest tokens are told is in one step at a time, too: its logits have one
// place.
//
// A prompt whose tokens are scored is read by steps that leave the logits behind each token, the
// rows of a verify replay at a time: they say how likely the next token was.
//
// A choice with a grammar reads its last chunk when the grammar is compiled, and is in one step at
// a time: which tokens may come next follows from the one before. Its drafts are followed by a
// matcher of their own, the scout, so that what a draft costs, or where it fails, is nothing to the
// text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lm/engine/mailbox.hpp"
#include "lm/engine/speculation.hpp"
#include "lm/session.hpp"

namespace frt::host {

enum class Phase { kWaiting, kPrefill, kDecode, kPreempted, kOver };

struct LiveRequest;

struct Choice {
  using Clock = EngineRequest::Clock;

  LiveRequest* request = nullptr;
  uint32_t index = 0;
  Phase phase = Phase::kWaiting;
  Phase interrupted = Phase::kPrefill;  // of kPreempted: where it goes on
  frt_sampling_params sampling{};
  std::optional<uint32_t> slot{};
  std::optional<Session::Snapshot> saved{};  // of kPreempted
  bool held = false;  // makes no steps until another one leaves its slot: pages ran out

  // Reading.
  uint64_t first = 0;      // tokens of the prompt that were reused
  uint64_t read = 0;       // tokens of the prompt that are submitted
  uint64_t last_step = 0;  // StepScheduler's Reader
  std::vector<Session::Stop> stops{};
  std::size_t next_stop = 0;
  std::unique_ptr<TopTokens> prompt_top{};  // null: the prompt's likeliest tokens are not told

  // Writing.
  uint64_t limit = 0;      // tokens that may be written
  uint64_t sampled = 0;    // by steps that are submitted
  uint32_t in_flight = 0;  // steps that are submitted and not over
  bool ending = false;
  std::unique_ptr<GrammarMatcher>
      matcher{};                            // behind what was sampled; null: no grammar, or not yet
  std::vector<uint32_t> mask{};             // tokens that may come next; empty: all
  std::unique_ptr<GrammarMatcher> scout{};  // behind the text and `scouted`; null: no draft yet
  std::vector<int32_t> scouted{};           // drafts
  bool drafts_masked = true;                // masks of drafts can be had
  std::unique_ptr<TopTokens> top{};         // null: nobody asked for them
  Acceptance acceptance{};                  // of its drafts so far
  uint32_t drafts = 0;                      // of its round in flight

  EngineResult result{};
  Clock::time_point started{}, first_token{}, last_token{};
};

struct LiveRequest {
  Submission submission;
  std::vector<Choice> choices{};
  uint32_t unfinished = 0;
  bool started = false;                     // it has left the queue
  bool looked_up = false;                   // a capsule that is on the disk alone was asked for
  std::string fetching{};                   // that capsule, until it is in memory
  bool forked = false;                      // the choices behind the first may begin
  std::optional<Session::Snapshot> fork{};  // what they begin with; nothing: they read it all
  uint32_t forks_left = 0;                  // choices that have not begun
  bool compiling = false;                   // the grammar is not there yet
  bool forgotten = false;                   // so are its slots when it leaves them
  uint32_t owner_slots = 0;                 // of its owner, when admission last put it in order

  const EngineRequest& asked() const noexcept { return submission.request; }
  EngineListener& listener() const noexcept { return *submission.listener; }
};

}  // namespace frt::host
