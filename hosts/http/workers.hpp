// SPDX-License-Identifier: Apache-2.0
// workers.hpp - threads that run short jobs: parsing, rendering, tokenizing, text of tokens. All
// members are [any].
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace frt::host {

// Of several threads one is always free for what was begun: large new requests stop no stream.
class Workers {
 public:
  // `limit`: jobs of try_post() that may wait.
  Workers(std::size_t threads, std::size_t limit);
  ~Workers();  // runs what waits, then ends
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Work that somebody new asks for; false: too much waits already.
  bool try_post(std::function<void()> job);
  // Work for what was begun: goes first, is never refused.
  void post(std::function<void()> job);
  std::size_t waiting() const;

 private:
  void run();

  const std::size_t limit_, most_fresh_;
  std::size_t fresh_running_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> begun_, fresh_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Jobs that run one after the other, in order, on any worker.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  explicit Strand(Workers& workers) : workers_(workers) {}
  void post(std::function<void()> job);

 private:
  void run();

  Workers& workers_;
  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;
  bool running_ = false;
};

}  // namespace frt::host
