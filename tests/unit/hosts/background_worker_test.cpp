// SPDX-License-Identifier: Apache-2.0
// The order of jobs that a driver has done beside it.
#include "lm/capsules/background_worker.hpp"

#include <doctest/doctest.h>

#include <future>
#include <stdexcept>
#include <string>
#include <vector>

namespace frt::host {
namespace {

using Urgency = BackgroundWorker::Urgency;
using Names = std::vector<std::string>;

// Posts jobs that write their names down, behind one that waits for go().
struct Jobs {
  Jobs() {
    worker.post(
        "first",
        [this, released = release.get_future().share()] {
          begun.set_value();
          released.wait();
        },
        nullptr);
    begun.get_future().wait();
  }
  uint64_t post(const std::string& subject, const std::string& name, Urgency urgency) {
    return worker.post(
        subject, [this, name] { order.push_back(name); }, nullptr, urgency);
  }
  void go() { release.set_value(); }

  std::promise<void> begun, release;
  Names order;  // of the worker until wait_all()
  BackgroundWorker worker;
};

}  // namespace

TEST_CASE("loads overtake saves, and keep their own order") {
  Jobs jobs;
  jobs.post("a", "save a", Urgency::kLater);
  jobs.post("b", "save b", Urgency::kLater);
  jobs.post("c", "load c", Urgency::kNow);
  jobs.post("d", "load d", Urgency::kNow);
  jobs.go();
  jobs.worker.wait_all();
  CHECK(jobs.order == Names{"load c", "load d", "save a", "save b"});
}

TEST_CASE("what was posted of the same capsule before a load goes with it, in order") {
  Jobs jobs;
  jobs.post("a", "save a", Urgency::kLater);
  jobs.post("b", "release b", Urgency::kLater);
  jobs.post("a", "touch a", Urgency::kLater);
  jobs.post("b", "load b", Urgency::kNow);
  jobs.go();
  jobs.worker.wait_all();
  CHECK(jobs.order == Names{"release b", "load b", "save a", "touch a"});
}

TEST_CASE("loads that keep coming do not keep a save waiting for ever") {
  Jobs jobs;
  jobs.post("a", "save a", Urgency::kLater);
  jobs.post("b", "save b", Urgency::kLater);
  Names expected;
  for (uint32_t i = 0; i < 3 * BackgroundWorker::kMostOvertakes; ++i) {
    const std::string load = "load " + std::to_string(i);
    jobs.post(load, load, Urgency::kNow);
    if (i == BackgroundWorker::kMostOvertakes) expected.push_back("save a");
    if (i == 2 * BackgroundWorker::kMostOvertakes) expected.push_back("save b");
    expected.push_back(load);
  }
  jobs.go();
  jobs.worker.wait_all();
  CHECK(jobs.order == expected);
}

TEST_CASE("of jobs that say the same of a capsule one is done, in its place among the others") {
  Jobs jobs;
  const uint64_t first = jobs.post("a", "touch a", Urgency::kMerged);
  jobs.post("b", "touch b", Urgency::kMerged);
  CHECK(jobs.post("a", "touch a", Urgency::kMerged) == first);
  jobs.post("a", "save a", Urgency::kLater);
  CHECK(jobs.post("a", "touch a again", Urgency::kMerged) != first);
  jobs.go();
  jobs.worker.wait_all();
  CHECK(jobs.order == Names{"touch a", "touch b", "save a", "touch a again"});
  jobs.post("a", "touch a", Urgency::kMerged);
  jobs.worker.wait_all();
  CHECK(jobs.order.size() == 5);
  CHECK(jobs.worker.idle());
}

TEST_CASE("the driver can wait for one job of several, and hears how each ended") {
  Jobs jobs;
  jobs.post("a", "save a", Urgency::kLater);
  const uint64_t wanted = jobs.post("b", "save b", Urgency::kLater);
  std::string failure;
  const uint64_t failing = jobs.worker.post(
      "c", [] { throw std::runtime_error("no disk"); },
      [&](const std::exception_ptr& met) {
        try {
          std::rethrow_exception(met);
        } catch (const std::exception& error) {
          failure = error.what();
        }
      });
  CHECK(jobs.worker.working());
  jobs.go();
  jobs.worker.wait(wanted);
  jobs.worker.wait(failing);
  CHECK(failure == "no disk");
  jobs.worker.wait_all();
  CHECK(jobs.order.size() == 2);
  CHECK(jobs.worker.idle());
  CHECK_FALSE(jobs.worker.working());
}

}  // namespace frt::host
