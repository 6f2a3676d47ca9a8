// SPDX-License-Identifier: Apache-2.0
// engine.hpp - serves many requests at once over the slots of one model.
//
// One thread makes all steps. A step is one prefill chunk of one request, or one token of every
// request that is writing (at most max_batch of them). While somebody writes, prefill chunks are
// spaced so that a step takes `step_seconds` on average (scheduler.hpp). Step n + 1 is submitted
// before the results of step n are awaited.
//
// Where the model has a draft head, a step of those who write may be a round of drafts: it gives
// each of them one or several tokens, those that plain steps would give (speculation.hpp). The next
// step waits for its results.
//
// A request leaves the queue when a slot is free and the state has pages for its prompt. Where
// pages run out while requests write, capsules leave the device first, then what idle slots hold,
// then the youngest request of the lowest priority: its state moves to host memory, and comes back
// when there is room. It gives the tokens that it would have given.
//
// Every request gives the tokens that it gives alone, if the model's results do not depend on the
// batch and the prefix that it reuses lies on the cold path (PrefixDecision::cold_path).
//
// Model, registry and context are used by the engine's thread alone from construction to
// destruction; call() is how others reach them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lm/capsules/registry.hpp"
#include "lm/engine/request.hpp"
#include "lm/engine/speculation.hpp"
#include "lm/engine/stats.hpp"
#include "lm/lm_model.hpp"

namespace frt::host {

struct EngineOptions {
  uint32_t queue_limit = 1024;  // requests that may wait for a slot
  uint32_t slots = 0;           // of the model's that requests get, the first ones; 0: all
  // What a step may take on average while somebody writes. Prefill chunks are not cut shorter, for
  // results depend on where a prompt is cut: decode steps between two chunks become more. 0: one
  // decode step between two chunks.
  double step_seconds = 0.1;
  bool interleave_prefills = false;  // chunk by chunk in turn; else one prompt after the other
  // Of requests of one priority those begin first whose owners have the fewest slots, so that an
  // owner with many requests does not keep another one waiting.
  bool fair_owners = false;
  // Conversations (EngineRequest::affinity) whose slots are not given to requests without one: the
  // ones used last. Less than there are slots.
  uint32_t hot_contexts = 0;
  // Conversations that one owner may have pinned at a time; 0: half of the slots, but one at least.
  uint32_t pins_per_owner = 0;
  SessionOptions session;  // `owner` is each request's own
  // Calls `body`, all that the engine's thread does: for what a host keeps by thread. Empty: the
  // thread just does it.
  std::function<void(const std::function<void()>& body)> around{};
};

// A conversation (EngineRequest::affinity) that a slot holds.
struct EngineSession {
  std::string affinity;
  uint64_t tokens = 0;
  bool busy = false;    // a request uses it now
  bool pinned = false;  // EngineAccess::pin()
  std::vector<Session::Boundary> boundaries;
};

// What call() works on. Valid during the call.
class EngineAccess {
 public:
  virtual ~EngineAccess() = default;
  virtual const LmModel& model() const = 0;
  virtual CapsuleRegistry* registry() = 0;
  // The session that holds what the last request of `affinity` and `owner` left, if no request
  // uses it now. Null: none.
  virtual Session* idle_session(const std::string& owner, const std::string& affinity) = 0;
  // Of `owner`, the one used last first.
  virtual std::vector<EngineSession> sessions(const std::string& owner) const = 0;
  // A slot for a conversation that comes from elsewhere: its own, with what it holds, else another
  // one that no request uses, empty. Never `spared`. Null: there is none.
  virtual Session* claim_session(const std::string& owner, const std::string& affinity,
                                 const Session* spared) = 0;
  // Its slots forget it: now, or when the requests that use them are over.
  virtual void forget_session(const std::string& owner, const std::string& affinity) = 0;
  // Its slot is given to no other conversation while there is another slot. At most slots - 1
  // conversations are pinned at a time, and EngineOptions::pins_per_owner of one owner:
  // FRT_ERR_OUT_OF_RANGE.
  virtual void pin(const std::string& owner, const std::string& affinity, bool pinned) = 0;
};

class Engine {
 public:
  // Starts the thread. `registry` may be null: then nothing is kept or found. All outlive this
  // object. Throws FRT_ERR_OUT_OF_RANGE for an option that does not fit the model.  [setup]
  Engine(const LmModel& model, CapsuleRegistry* registry, EngineOptions options = {});
  // Cancels what is not over: every request ends with an answer.  [setup]
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns the request's number, 1 and up. Throws FRT_ERR_INVALID_ARGUMENT for an empty prompt of
  // a request that does not resume, what a request that does may not have, no choices, an id
  // outside the vocabulary or twice in the bias; FRT_ERR_OUT_OF_RANGE for a prompt longer than the
  // context or than all pages; FRT_ERR_NOT_READY if the queue is full, so that a later try may
  // succeed; FRT_ERR_BAD_STATE after drain(); FRT_ERR_DEVICE_LOST once the device is lost.  [any]
  uint64_t submit(EngineRequest request, std::shared_ptr<EngineListener> listener);
  // What is not over of a request ends with Finish::kCancelled, within one step. One that is over,
  // or never was, is ignored.  [any]
  void cancel(uint64_t request) noexcept;
  // No new requests; returns when the last one is over. Not on the engine's thread.  [any]
  void drain();
  EngineStats stats() const;  // [any]
  // Runs `work` between two steps on the engine's thread and waits for it; throws what it throws.
  // FRT_ERR_BAD_STATE after the device was lost. Not on the engine's thread.  [any]
  void call(std::function<void(EngineAccess&)> work);
  // As call(), and also after the device was lost. `work` only releases what belongs to the
  // context, and must not throw.  [any]
  void let_go(std::function<void()> work);

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace frt::host
