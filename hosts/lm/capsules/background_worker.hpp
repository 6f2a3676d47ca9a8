// SPDX-License-Identifier: Apache-2.0
// background_worker.hpp - one thread for what the driver thread must not wait for: files.
//
// A job runs on the worker; its end runs on the driver, in drain() or wait(). So whatever the
// driver owns is touched by the driver alone, and no lock is held while a job runs.
//
// Somebody waits for an urgent job (a load), nobody for the others (a save): urgent ones overtake,
// kMostOvertakes of them at most until the one that was posted first has its turn.
// Jobs of one subject never overtake each other; those before an urgent one go first with it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

namespace frt::host {

class BackgroundWorker {
 public:
  // Called on the driver when a job is over; `failure` is what it threw, or null.
  using End = std::function<void(std::exception_ptr failure)>;

  BackgroundWorker();
  // Finishes the jobs that were posted; their ends are not called any more.  [driver]
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  static constexpr uint32_t kMostOvertakes = 8;

  // kMerged: later, and once for several: where the last job of its subject that waits is such a
  // one, too, that one does for both, and what was posted now, with its end, is dropped.
  enum class Urgency { kLater, kMerged, kNow };
  // Jobs run one after the other, in the order they were posted, but for urgent ones. `subject`:
  // what the job works on, a capsule's name. Returns a ticket.  [driver]
  uint64_t post(std::string subject, std::function<void()> job, End end,
                Urgency urgency = Urgency::kLater);
  // Calls the ends of the jobs that are over.  [driver]
  void drain();
  // Until the job `ticket` and its end are over: it is urgent from now on.  [driver]
  void wait(uint64_t ticket);
  void wait_all();
  bool idle() const;     // nothing posted that has not ended  [driver]
  bool working() const;  // a job runs or waits  [any]

 private:
  struct Job {
    uint64_t ticket = 0;
    std::string subject;
    std::function<void()> run;
    End end;
    Urgency urgency = Urgency::kLater;
    std::exception_ptr failure{};
  };

  void work();
  std::list<Job> take_next();  // one, with the mutex held
  std::optional<uint64_t> merged_with(const std::string& subject) const;
  void drain_next();  // waits for one that is over

  mutable std::mutex mutex_;
  std::condition_variable posted_, over_;
  std::list<Job> waiting_, done_;
  uint32_t overtakes_ = 0;        // of the first of waiting_
  uint64_t next_ticket_ = 0;      // driver only
  std::set<uint64_t> not_ended_;  // driver only
  bool running_ = false;          // a job
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace frt::host
