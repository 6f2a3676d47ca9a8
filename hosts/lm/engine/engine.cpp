// SPDX-License-Identifier: Apache-2.0
#include "lm/engine/engine.hpp"

#include <utility>

#include "lm/engine/thread.hpp"

namespace frt::host {

Engine::Engine(const LmModel& model, CapsuleRegistry* registry, EngineOptions options)
    : thread_(std::make_unique<Thread>(model, registry, std::move(options))) {}

Engine::~Engine() = default;

uint64_t Engine::submit(EngineRequest request, std::shared_ptr<EngineListener> listener) {
  thread_->check(request);
  if (!listener) throw Error(FRT_ERR_INVALID_ARGUMENT, "a request needs a listener");
  return thread_->mailbox().submit(std::move(request), std::move(listener));
}

void Engine::cancel(uint64_t request) noexcept {
  thread_->mailbox().cancel(request);
}

void Engine::drain() {
  thread_->mailbox().drain();
}

EngineStats Engine::stats() const {
  return thread_->stats();
}

void Engine::call(std::function<void(EngineAccess&)> work) {
  thread_->mailbox().call(std::move(work));
}

void Engine::let_go(std::function<void()> work) {
  thread_->mailbox().let_go([&](EngineAccess&) { work(); });
}

}  // namespace frt::host
