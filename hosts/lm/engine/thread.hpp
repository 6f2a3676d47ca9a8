// SPDX-License-Identifier: Apache-2.0
// thread.hpp - the engine's thread: what it holds, and the parts of its loop.
//
//   thread.cpp     the loop; what other threads want; how requests end
//   sessions.cpp   conversations, for EngineAccess
//   admission.cpp  who gets a slot; who gives one back when pages run out
//   steps.cpp      steps and their results
//   masks.cpp      answers that follow a grammar
//   rounds.cpp     steps with drafts
//
// A failure ends the requests whose state it touched, and their slots are cleared before they are
// used again. When the device is lost every request ends, and no later one is taken.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lm/engine/choice.hpp"
#include "lm/engine/engine.hpp"
#include "lm/engine/mailbox.hpp"
#include "lm/engine/meter.hpp"
#include "lm/engine/scheduler.hpp"
#include "lm/engine/slot_choice.hpp"
#include "lm/step_runner.hpp"

namespace frt::host {

class Engine::Thread final : public EngineAccess {
 public:
  Thread(const LmModel& model, CapsuleRegistry* registry, EngineOptions options);
  ~Thread() override;

  Mailbox& mailbox() noexcept { return mailbox_; }
  void check(const EngineRequest& request) const;  // as Engine::submit() does  [any]
  void check_bias(std::span<const frt_logit_bias> bias) const;
  static void check_resuming(const EngineRequest& request);
  EngineStats stats() const;  // [any]

  // ---- EngineAccess ----
  const LmModel& model() const override { return model_; }
  CapsuleRegistry* registry() override { return registry_; }
  Session* idle_session(const std::string& owner, const std::string& affinity) override;
  void pin(const std::string& owner, const std::string& affinity, bool pinned) override;
  std::vector<EngineSession> sessions(const std::string& owner) const override;
  Session* claim_session(const std::string& owner, const std::string& affinity,
                         const Session* spared) override;
  void forget_session(const std::string& owner, const std::string& affinity) override;

 private:
  using Clock = EngineRequest::Clock;

  struct Slot {
    Session session;
    Choice* user = nullptr;
    std::string affinity{};
    uint64_t prompt = 0;  // tokens of the last request's
    uint64_t last_used = 0;
    bool pinned = false;
    bool broken = false;  // nobody knows what it holds
    Buffer logits{};      // f32 (vocabulary), pinned: of a choice with `top`
  };
  // A step that is submitted.
  struct Flight {
    uint64_t ticket = 0;
    StepKind kind = StepKind::kNone;
    bool samples = false;          // its tokens count
    uint32_t drafts = 0;           // of a round: the most of an entry
    uint64_t read = 0;             // of a prefill step: tokens of the prompt behind it
    uint32_t known = 0;            // of these, so many have their logits in score_logits_
    std::vector<Choice*> members;  // by entry; null: its request is over
    Clock::time_point submitted{};
  };
  // Steps in flight: one runs, one follows.
  static constexpr std::size_t kAhead = 2;

  // ---- sessions.cpp ----
  void forget(Slot& slot);

  // ---- thread.cpp ----
  void run();
  void turn();
  void receive();
  void take_in(Submission& submission);
  void expire(Clock::time_point now);
  void idle();
  void end(Choice& choice, Finish finish);
  void finalize(Choice& choice);
  void leave_slot(Choice& choice, bool broken);
  void fail(LiveRequest& request, frt_status status, const std::string& message);
  void fail_all(frt_status status, const std::string& message);
  // Ends `request`, or every one if it is null or the device is lost.
  void met(LiveRequest* request, frt_status status, const std::string& message);
  void forget_over();
  void count_phases();

  // ---- admission.cpp ----
  void poll_fetches();
  void admit();
  void put_in_order(std::span<Choice*> candidates) const;
  bool waits_for_fetch(LiveRequest& request);
  static SlotView view_of(const Slot& slot);
  std::optional<uint32_t> slot_for(Choice& choice);
  std::optional<uint32_t> slot_to_resume(Choice& choice);
  std::string affinity_of(const Choice& choice, const Slot& slot) const;
  bool has_pages(const Choice& choice, uint32_t slot);
  bool start(Choice& choice, uint32_t slot);
  void begin(Choice& choice, Slot& slot);
  void resume(Choice& choice, Slot& slot);
  void tell_start(const Choice& choice);
  void make_top(Choice& choice) const;
  bool free_idle_slot(std::optional<uint32_t> spared);
  bool free_fork();
  bool free_pages();
  static std::optional<Session::Snapshot> snapshot_on_host(const Session& session);
  bool preempt(Choice& choice);
  std::size_t slots_used() const;

  // ---- steps.cpp ----
  bool submit_step();
  bool submit_prefill();
  bool submit_decode();
  uint64_t next_end(const Choice& choice) const;
  void read_on(Choice& choice);
  void make_fork(Choice& choice);
  Flight& new_flight(StepKind kind);
  void finish_step();
  void finish_member(const Flight& flight, Choice& choice, const StepRunner::Sampled& sampled);
  static bool scores(const Choice& choice);
  bool scoring() const;
  bool tell_prompt(const Flight& flight, Choice& choice, const StepRunner::Sampled& sampled);
  void tell_top(Choice& choice, int32_t token, float log_probability);
  void take_token(Choice& choice, int32_t token, float log_probability, bool fed);

  // ---- masks.cpp ----
  void poll_grammars();
  bool waits_for_grammar(const Choice& choice) const;
  void begin_grammar(Choice& choice);
  bool follow_grammar(Choice& choice, int32_t token);
  bool lead_on(Choice& choice);
  bool ends_at_limit(Choice& choice);
  uint32_t mask_drafts(Choice& choice, std::span<const int32_t> drafts, std::span<uint32_t> masks);
  static void follow_scout(Choice& choice, int32_t token);
  static void drop_scout(Choice& choice);
  bool fill_mask(const EngineRequest& asked, GrammarMatcher& matcher, std::span<uint32_t> mask,
                 uint64_t generated);
  static const uint32_t* mask_of(const Choice& choice) {
    return choice.mask.empty() ? nullptr : choice.mask.data();
  }

  // ---- rounds.cpp ----
  bool decode_waits();
  uint32_t plan_drafts();
  bool submit_round();
  void feed_drafts(Choice& choice, const StepRunner::Sampled& sampled);

  static std::span<const frt_logit_bias> bias_of(const Choice& choice) {
    return choice.request->asked().bias;
  }
  frt_buffer logits_of(const Choice& choice) const {
    return choice.top ? slots_[*choice.slot].logits.handle() : nullptr;
  }
  Session& session_of(const Choice& choice) { return slots_[*choice.slot].session; }

  const LmModel& model_;
  CapsuleRegistry* registry_;
  EngineOptions options_;
  Mailbox mailbox_;
  EngineMeter meter_;
  StepRunner runner_;
  StepScheduler scheduler_;
  DraftPlanner planner_;
  std::vector<Slot> slots_;
  // Of the tokens of a prompt that is scored, one step of one request at a time.
  uint32_t score_rows_;
  Buffer score_logits_;                             // f32 (score_rows_, vocabulary), pinned
  std::vector<std::unique_ptr<LiveRequest>> live_;  // in the order of arrival
  std::array<Flight, kAhead> flights_;              // a ring
  std::size_t oldest_flight_ = 0, flights_in_air_ = 0;
  Clock::time_point last_result_{};

  std::vector<Submission> arrived_;
  std::vector<Choice*> candidates_;
  std::vector<SlotView> views_;
  std::vector<uint64_t> continues_, common_;
  std::vector<Reader> readers_;
  std::vector<Choice*> reading_;
  std::vector<StepRunner::Entry> entries_;
  std::vector<Choice*> writers_;  // of the next decode step
  std::vector<const Acceptance*> acceptances_;
  std::vector<StepRunner::RoundEntry> round_entries_;
  uint32_t drafts_ = 0;  // of the next decode step, the most of a writer
  uint64_t uses_ = 0;    // of slots; their clock
  uint64_t steps_ = 0;
  std::size_t next_writer_ = 0;  // the slot that the next decode step begins with
  std::size_t fetching_ = 0, timed_ = 0, compiling_ = 0;  // requests
  bool changed_ = false;                                  // somebody may leave the queue
  bool over_ = false;                                     // somebody is over

  std::thread thread_;  // last: it uses the rest
};

}  // namespace frt::host
