// SPDX-License-Identifier: Apache-2.0
// compiler.hpp - compiles grammars for one model beside whoever wants them, and keeps what was
// compiled.
//
// A source is compiled once while somebody waits for it or the cache holds it; the cache drops what
// was used the longest ago when it has more than its bytes. A compilation that nobody waits for any
// more is left out or ended. Failures are not kept. Owners take turns, however much one of them
// asks for.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "lm/engine/meter.hpp"
#include "lm/grammar/backend.hpp"
#include "lm/grammar/ticket.hpp"
#include "lm/text_model.hpp"

namespace frt::host {

struct GrammarCompilerOptions {
  uint32_t threads = 2;
  GrammarBudget budget{};
  uint64_t cache_bytes = 256ULL << 20;
  uint32_t queue_limit = 64;  // compilations that wait
};

struct GrammarStats {
  uint64_t hits = 0;    // asked for while the cache held it or somebody waited for it
  uint64_t misses = 0;  // asked for otherwise
  uint64_t compiled = 0, failed = 0, dropped = 0;  // dropped: nobody waited any more
  uint64_t waiting = 0;                            // now
  uint64_t cached = 0, cached_bytes = 0;           // now
  DurationHistogram compile;                       // of those that were compiled or failed
};

class GrammarCompiler {
 public:
  // Throws FRT_ERR_UNSUPPORTED where there is no backend or the model's tokenizer does not say what
  // its tokens stand for. `vocabulary`: tokens that the model may sample. `model` outlives this
  // object.  [setup]
  GrammarCompiler(const TextModel& model, uint32_t vocabulary, GrammarCompilerOptions options = {});
  // With another backend; for tests.
  GrammarCompiler(std::unique_ptr<GrammarBackend> backend, GrammarCompilerOptions options);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // `owner`: who asks. Throws FRT_ERR_NOT_READY while queue_limit compilations wait.  [any]
  std::shared_ptr<GrammarTicket> compile(const GrammarSource& source,
                                         const std::string& owner = {});
  GrammarStats stats() const;  // [any]

 private:
  struct Job {
    GrammarSource source;
    std::weak_ptr<GrammarTicket> ticket;
    std::string owner;  // who asked first
  };
  struct Kept {
    std::string key;
    std::shared_ptr<GrammarTicket> ticket;
    uint64_t bytes = 0;
  };

  void start();
  void stop() noexcept;  // the threads are over then
  void run();
  Job take_next() noexcept;  // with the mutex held
  void work(const Job& job) noexcept;
  void keep(const GrammarSource& source, const std::shared_ptr<GrammarTicket>& ticket) noexcept;
  const GrammarBackend& backend();

  const TextModel* model_ = nullptr;
  const uint32_t vocabulary_ = 0;
  const GrammarCompilerOptions options_;

  std::once_flag backend_made_;
  std::unique_ptr<GrammarBackend> backend_;

  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Job> jobs_;    // in the order of arrival
  std::string last_owner_;  // of the job that was taken last
  std::unordered_map<std::string, std::weak_ptr<GrammarTicket>> pending_;  // by key
  std::list<Kept> kept_;                                                   // the last used first
  std::unordered_map<std::string_view, std::list<Kept>::iterator> index_;
  GrammarStats stats_;
  DurationMeter compile_;

  std::vector<std::thread> threads_;  // last: they use the rest
};

}  // namespace frt::host
