// SPDX-License-Identifier: Apache-2.0
#include "lm/grammar/compiler.hpp"

#include <algorithm>
#include <chrono>
#include <frt/error.hpp>
#include <utility>

#include "lm/grammar/vocabulary.hpp"

namespace frt::host {
namespace {

std::string key_of(const GrammarSource& source) {
  return (source.strict ? "s" : "r") + source.text;
}

}  // namespace

void GrammarTicket::end(std::shared_ptr<const Grammar> grammar, frt_status status,
                        std::string_view text) noexcept {
  grammar_ = std::move(grammar);
  status_ = status;
  guard(nullptr, [&] { message_ = text; });
  over_.store(true, std::memory_order_release);
  over_.notify_all();
}

GrammarCompiler::GrammarCompiler(const TextModel& model, uint32_t vocabulary,
                                 GrammarCompilerOptions options)
    : model_(&model), vocabulary_(vocabulary), options_(options) {
  require_grammar_backend();
  uint32_t flags = 0;
  model.token_bytes(0, flags);  // or it throws
  start();
}

GrammarCompiler::GrammarCompiler(std::unique_ptr<GrammarBackend> backend,
                                 GrammarCompilerOptions options)
    : options_(options), backend_(std::move(backend)) {
  start();
}

void GrammarCompiler::start() {
  if (options_.threads == 0) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "a compiler of grammars needs 1 thread or more");
  }
  try {
    for (uint32_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
  } catch (...) {
    stop();
    throw;
  }
}

void GrammarCompiler::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  news_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

GrammarCompiler::~GrammarCompiler() {
  stop();
  for (const Job& job : jobs_) {
    if (const auto ticket = job.ticket.lock()) {
      ticket->end(nullptr, FRT_ERR_BAD_STATE, "the compiler of grammars is being ended");
    }
  }
}

std::shared_ptr<GrammarTicket> GrammarCompiler::compile(const GrammarSource& source,
                                                        const std::string& owner) {
  std::string key = key_of(source);
  const std::lock_guard lock(mutex_);
  if (const auto found = index_.find(key); found != index_.end()) {
    ++stats_.hits;
    kept_.splice(kept_.begin(), kept_, found->second);
    return found->second->ticket;
  }
  if (const auto found = pending_.find(key); found != pending_.end()) {
    if (auto ticket = found->second.lock()) {
      ++stats_.hits;
      return ticket;
    }
  }
  if (jobs_.size() >= options_.queue_limit) {
    throw Error(FRT_ERR_NOT_READY,
                std::to_string(jobs_.size()) + " grammars wait to be compiled; try again later");
  }
  auto ticket = std::make_shared<GrammarTicket>();
  jobs_.push_back({source, ticket, owner});
  try {
    pending_[std::move(key)] = ticket;
  } catch (...) {
    jobs_.pop_back();
    throw;
  }
  ++stats_.misses;
  news_.notify_one();
  return ticket;
}

GrammarStats GrammarCompiler::stats() const {
  const std::lock_guard lock(mutex_);
  GrammarStats stats = stats_;
  stats.waiting = jobs_.size();
  stats.cached = kept_.size();
  stats.compile = compile_.read();
  return stats;
}

// The first job of the owner whose name comes next behind the last one's, and then from the front.
GrammarCompiler::Job GrammarCompiler::take_next() noexcept {
  const auto next = std::ranges::min_element(jobs_, {}, [&](const Job& job) {
    return std::pair(job.owner <= last_owner_, std::string_view(job.owner));
  });
  Job job = std::move(*next);
  jobs_.erase(next);
  last_owner_ = std::move(job.owner);
  return job;
}

void GrammarCompiler::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = take_next();
    lock.unlock();
    work(job);
    lock.lock();
  }
}

// The vocabulary of a large model takes half a second, so the first grammar makes it.
const GrammarBackend& GrammarCompiler::backend() {
  std::call_once(backend_made_, [&] {
    if (!backend_) backend_ = make_grammar_backend(grammar_vocabulary(*model_, vocabulary_));
  });
  return *backend_;
}

void GrammarCompiler::work(const Job& job) noexcept {
  std::shared_ptr<const Grammar> grammar;
  frt_error error{};
  frt_status status = FRT_ERR_BAD_STATE;
  const auto began = std::chrono::steady_clock::now();
  if (!job.ticket.expired()) {
    status = guard(&error, [&] {
      const std::function<bool()> wanted = [&] { return !stopping_ && !job.ticket.expired(); };
      grammar = backend().compile(job.source, options_.budget, wanted);
    });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto ticket = job.ticket.lock();
  const std::lock_guard lock(mutex_);
  // By ticket: a key would take memory. There are as many as jobs, at most.
  std::erase_if(pending_, [&](const auto& pending) {
    const auto other = pending.second.lock();
    return !other || other == ticket;
  });
  if (!ticket) {
    ++stats_.dropped;
    return;
  }
  compile_.add(took.count());
  if (status == FRT_OK) {
    ++stats_.compiled;
  } else {
    ++stats_.failed;
  }
  ticket->end(std::move(grammar), status, status == FRT_OK ? "" : error.message);
  if (status == FRT_OK) keep(job.source, ticket);
}

// Where there is no memory for it, it is not kept.
void GrammarCompiler::keep(const GrammarSource& source,
                           const std::shared_ptr<GrammarTicket>& ticket) noexcept {
  guard(nullptr, [&] {
    std::string key = key_of(source);
    const uint64_t bytes = ticket->grammar()->bytes() + key.size();
    if (bytes > options_.cache_bytes || index_.contains(key)) return;
    kept_.push_front({std::move(key), ticket, bytes});
    try {
      index_.emplace(kept_.front().key, kept_.begin());
    } catch (...) {
      kept_.pop_front();
      throw;
    }
    stats_.cached_bytes += bytes;
  });
  while (stats_.cached_bytes > options_.cache_bytes) {
    stats_.cached_bytes -= kept_.back().bytes;
    index_.erase(kept_.back().key);
    kept_.pop_back();
  }
}

}  // namespace frt::host
