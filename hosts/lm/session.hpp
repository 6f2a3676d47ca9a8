// SPDX-License-Identifier: Apache-2.0
// session.hpp - one live sequence in one slot: what was fed, the boundaries it can return to, and
// the decision how a prompt begins: continue the slot, restore a capsule, or read from the start.
//
// A slot cannot be cut back: only boundaries that were kept can be returned to. So capsules are
// taken by themselves where a later prompt is likely to part from this one: at multiples of the
// chunk, where the user's turn ends and the answer's reasoning begins, and where the answer ends.
//
// Steps of one sequence are submitted by prefill() and decode(). A step of several sequences is
// made of the decode_entry() of each, and told to each by decode_submitted().
//
// Steps are fed through here, so that the journal is never behind. Everything is [driver].
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lm/capsules/registry.hpp"
#include "lm/drafting.hpp"
#include "lm/lm_model.hpp"
#include "lm/prefix_parting.hpp"
#include "lm/step_runner.hpp"
#include "lm/token_journal.hpp"

namespace frt::host {

struct SessionOptions {
  std::string owner;             // whose capsules are found and kept
  uint64_t spacing = 16 * 1024;  // tokens between the chunk boundaries kept within a long prompt
  uint64_t min_tokens = 256;     // a boundary closer to the one before is not worth a capsule
  Drafting speculation = Drafting::kAuto;  // of Engine, with a draft head
};

// How a prompt begins.
enum class PrefixAction {
  kRead,      // from the first token on
  kContinue,  // the slot holds a part already
  kRestore,   // a capsule does
};
// "read", "continue", "restore".
const char* prefix_action_name(PrefixAction action) noexcept;

struct PrefixDecision {
  PrefixAction action = PrefixAction::kRead;
  uint64_t reused = 0;    // tokens that need not be read
  std::string capsule{};  // of kRestore
  bool cold_path = true;  // the rest equals a cold run bit for bit
  double seconds = 0;     // until the slot held it, or its restoring was submitted
  std::string reason{};   // for people: "restored 8192 of 8230 tokens from pin 'repo'"
  std::shared_ptr<const PrefixParting> parting{};  // prefix_reason() says why it was not more
};

class Session {
 public:
  // A place on the way of the sequence that a capsule was kept of.
  struct Boundary {
    uint64_t position = 0;
    CapsuleKind kind = CapsuleKind::kChunk;
    std::string capsule;
  };

  // `slot` belongs to this object. `registry` may be null: then nothing is kept or found. All
  // outlive it.  [setup]
  Session(const LmModel& model, StepRunner& runner, CapsuleRegistry* registry, uint32_t slot,
          SessionOptions options = {});

  uint32_t slot() const noexcept { return slot_; }
  const SessionOptions& options() const noexcept { return options_; }
  const TokenJournal& journal() const noexcept { return journal_; }
  const std::vector<Boundary>& boundaries() const noexcept { return boundaries_; }
  CapsuleRegistry* registry() const noexcept { return registry_; }
  // The token sampled last, if its text is known to the host.
  const PendingToken& pending() const noexcept { return pending_; }
  void set_pending(const PendingToken& pending) noexcept { pending_ = pending; }

  // A place in a prompt where a capsule is to be taken.
  struct Stop {
    uint64_t position = 0;
    CapsuleKind kind = CapsuleKind::kChunk;
    auto operator<=>(const Stop&) const = default;
  };
  // Those between what the slot holds and `length`, in order; none without a registry. `user_turn`:
  // where the user's turn ends; 0: nobody knows.
  std::vector<Stop> stops(uint64_t length, uint64_t user_turn) const;
  // Whether `position` is far enough behind the last boundary for one more.
  bool far_enough(uint64_t position) const;

  // Whose capsules are found and kept from now on. What the slot holds of another owner is
  // forgotten.
  void set_owner(const std::string& owner);

  // Makes the slot hold as much of the start of `prompt` as there is, but not all of it.
  // `reuse` false: from the first token on.
  PrefixDecision begin(std::span<const int32_t> prompt, bool reuse);

  // The next prefill step begins a new request, whose penalties know nothing of what was generated
  // before (frt/role/lm.h). begin() says so by itself.
  void start_request() noexcept { starts_request_ = true; }
  // Submits one step. A pool of pages that is dry is refilled from the oldest capsules.
  // The rest as for StepRunner::submit_prefill().
  uint64_t prefill(std::span<const int32_t> tokens, const frt_sampling_params* sampling = nullptr,
                   const uint32_t* mask = nullptr, frt_buffer logits = nullptr,
                   std::span<const frt_logit_bias> bias = {});
  // Feeds the pending token, whatever it is; fed() follows when the host knows it.
  uint64_t decode();
  void fed(int32_t token) { journal_.decode(token); }
  // Feeds known tokens as decode steps would (StepRunner::submit_known()).
  uint64_t feed(std::span<const int32_t> tokens, frt_buffer logits);
  // The entry of a decode step that feeds the pending token; decode_submitted() follows.
  StepRunner::Entry decode_entry() const {
    return {.slot = slot_, .position = static_cast<int32_t>(submitted_)};
  }
  void decode_submitted() noexcept { ++submitted_; }
  // A round of drafts (StepRunner::submit_round()) that began with the pending token is over.
  // `sampled`: what it gave; all but the last of these were fed too.
  void round_over(std::span<const int32_t> sampled);
  // So that `tokens` in all are fed without allocating.
  void reserve(uint64_t tokens) { journal_.reserve(tokens); }

  // Takes one, if there is a registry with room.
  void keep(CapsuleKind kind, const frt_sampling_params& sampling);
  // Takes one under a name and writes it to the disk; returns when it is there. See
  // CapsuleRegistry::save().
  void save(const std::string& name, const frt_sampling_params& sampling,
            nlohmann::ordered_json extra, bool replace);
  // The same in the background, without `replace` (CapsuleRegistry::save_later()). What an answer
  // ended with comes from the capsule that was kept there, if it is in memory still.
  void save_later(const std::string& name, const frt_sampling_params& sampling,
                  BackgroundWorker::End end);
  // Replaces everything by what the capsule holds; after an exception the slot is empty.
  std::shared_ptr<const CapsuleContent> restore(const std::string& name);
  // Makes `other` hold what this session holds, rows shared where the model can.
  void fork_to(Session& other) const;
  // What the slot holds, apart from it, in `space`. Every submitted step's token has been fed().
  // FRT_ERR_OUT_OF_MEMORY: nothing has changed.
  struct Snapshot {
    Capsule capsule;
    TokenJournal journal;
    std::vector<Boundary> boundaries;
    PendingToken pending;
    bool starts_request = false;
  };
  Snapshot snapshot(frt_space space) const;
  // Goes on from there, whatever the slot held; after an exception the slot is empty.
  void restore(const Snapshot& snapshot);
  // Forgets what the slot holds.
  void clear();

 private:
  CapsuleContent content(const frt_sampling_params& sampling) const;
  void take_over(const CapsuleContent& content, CapsuleKind kind, const std::string& name);
  template <class Submit>
  uint64_t submit(const Submit& step);

  const LmModel& model_;
  StepRunner& runner_;
  CapsuleRegistry* registry_;
  uint32_t slot_;
  SessionOptions options_;
  TokenJournal journal_;
  std::vector<Boundary> boundaries_;
  PendingToken pending_;
  bool starts_request_ = false;
  uint64_t submitted_ = 0;  // tokens fed by submitted steps; at least the journal's
};

}  // namespace frt::host
