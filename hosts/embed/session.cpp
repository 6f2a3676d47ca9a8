// SPDX-License-Identifier: Apache-2.0
// Sessions: what they hold of tokens is here, their state is the engine's. Whatever touches state
// is done between two steps, on the engine's thread.
#include <utility>

#include "embed/lm.hpp"

namespace frt::embed {
namespace {

// All sessions of a program are its own.
constexpr const char* kOwner = "";

// Capsules that nobody asked for give their memory to what somebody does.
template <class Work>
auto with_room(host::CapsuleRegistry* registry, const Work& work) {
  for (;;) {
    try {
      return work();
    } catch (const Error& error) {
      if (error.status() != FRT_ERR_OUT_OF_MEMORY || !registry || !registry->make_room()) throw;
    }
  }
}

[[noreturn]] void no_slot(const char* wanted) {
  throw Error(FRT_ERR_NOT_READY, std::string("no slot is free for the ") + wanted +
                                     ": answers are written in all of them; try again when one is "
                                     "over, or raise the model's option slots");
}

}  // namespace

Session::Session(std::shared_ptr<Lm> lm) : lm_(std::move(lm)), affinity_(lm_->new_affinity()) {}

Session::~Session() {
  try {
    lm_->engine().call(
        [&](host::EngineAccess& access) { access.forget_session(kOwner, affinity_); });
  } catch (const Error&) {
    return;  // the device is lost, and what it held
  }
}

void Session::settle() const {
  if (!answer_) return;
  if (!answer_->over()) {
    throw Error(FRT_ERR_BAD_STATE,
                "the session's answer is not over; read it to its end, or cancel it");
  }
  if (auto written = answer_->tokens()) tokens_ = *std::move(written);
  answer_.reset();
}

std::vector<int32_t> Session::tokens() const {
  const std::lock_guard lock(mutex_);
  settle();
  return tokens_;
}

uint64_t Session::held() const {
  const std::lock_guard lock(mutex_);
  settle();
  uint64_t held = 0;
  lm_->engine().call([&](host::EngineAccess& access) {
    const host::Session* session = access.idle_session(kOwner, affinity_);
    if (session) held = host::common_prefix(session->journal().tokens(), tokens_);
  });
  return held;
}

uint64_t Session::begin(const std::shared_ptr<Answer>& answer, host::EngineRequest request,
                        const SetPrompt& set_prompt) {
  const std::lock_guard lock(mutex_);
  settle();
  set_prompt(tokens_, request);
  request.affinity = affinity_;
  request.owner = kOwner;
  answer->set_prompt(request.prompt);
  const frt_sampling_params sampling = request.sampling;
  const uint64_t number = lm_->engine().submit(std::move(request), answer);
  answer_ = answer;
  sampling_ = sampling;
  return number;
}

std::shared_ptr<Session> Session::fork() {
  const std::lock_guard lock(mutex_);
  settle();
  auto other = std::make_shared<Session>(lm_);
  lm_->engine().call([&](host::EngineAccess& access) {
    const host::Session* source = access.idle_session(kOwner, affinity_);
    if (!source) return;  // its tokens are read again
    host::Session* target = access.claim_session(kOwner, other->affinity_, source);
    if (!target) no_slot("fork");
    target->clear();
    try {
      with_room(access.registry(), [&] { source->fork_to(*target); });
    } catch (...) {
      target->clear();
      throw;
    }
  });
  other->tokens_ = tokens_;
  other->sampling_ = sampling_;
  return other;
}

std::shared_ptr<LmCapsule> Session::snapshot(frt_space space) const {
  if (space != FRT_SPACE_DEVICE && space != FRT_SPACE_HOST_PINNED) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "a capsule is kept in FRT_SPACE_DEVICE or FRT_SPACE_HOST_PINNED");
  }
  const std::lock_guard lock(mutex_);
  settle();
  std::shared_ptr<LmCapsule> capsule;
  lm_->engine().call([&](host::EngineAccess& access) {
    const host::Session* session = access.idle_session(kOwner, affinity_);
    if (!session || session->journal().size() == 0) {
      throw Error(FRT_ERR_BAD_STATE,
                  "no slot holds the session's state: nothing was read yet, or its slot was given "
                  "to another session; generate, then take the snapshot");
    }
    host::Session::Snapshot taken =
        with_room(access.registry(), [&] { return session->snapshot(space); });
    capsule = std::make_shared<LmCapsule>(lm_, std::move(taken), tokens_, sampling_);
  });
  return capsule;
}

void Session::restore(const LmCapsule& capsule) {
  if (capsule.lm() != lm_) {
    throw Error(FRT_ERR_MISMATCH, "the capsule is one of another language model");
  }
  const std::lock_guard lock(mutex_);
  settle();
  lm_->engine().call([&](host::EngineAccess& access) {
    host::Session* session = access.claim_session(kOwner, affinity_, nullptr);
    if (!session) no_slot("session");
    with_room(access.registry(), [&] { session->restore(capsule.snapshot()); });
  });
  tokens_ = capsule.tokens();
  sampling_ = capsule.sampling();
}

}  // namespace frt::embed
