// SPDX-License-Identifier: Apache-2.0
// run.hpp - cases in child processes, and what became of them. Whatever a plugin does to the
// process that it is in, each case gets exactly one verdict.
//
// A case of every plugin has a process of its own. Its verdict is known when that process has
// ended: destructors of static objects and what a plugin gave to atexit() belong to the case. The
// cases of operators share a process; what happens in it while no case runs is told as `plugin
// process`, and a new process goes on with the first case that has no verdict.
//
// Verdicts: ok, warn (passes, with a word), FAIL, CRASH, HANG, skip, left out (--seconds).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "child.hpp"
#include "choice.hpp"

namespace frt::conformance {

struct Totals {
  int passed = 0, failed = 0, skipped = 0, left = 0;
  int rounded = 0;                       // with a product of rounded activations
  std::map<std::string, int> reasons{};  // of skipped cases, and how many were for each
};

// How a run is told: a line for each case that is worth one, or everything in one JSON object.
struct Report {
  bool verbose = false, json = false;
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();

  void add(const std::string& name, const std::string& result, const std::string& line,
           const std::string& message, const std::vector<std::string>& variants);
};

// Whether the case compares with the CPU backend: the rules of frt/backend.h are judged without.
bool needs_reference(const Item& item);

// The arguments live as long as the run.
class Run {
 public:
  Run(const Items& items, const Subject& subject, const Choice& choice, std::string id,
      Report& report);

  void all();

  const Totals& totals() const { return totals_; }
  // On stdout: the counts so far, what has no verdict yet, and why cases were skipped.
  void print_summary() const;
  const std::string& device() const { return device_; }
  // What the device offers and no case ran.
  std::vector<std::string> idle() const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMostEnds = 20;  // of processes that crashed or hung

  bool run_plugin_cases();
  void run_operator_cases();
  std::size_t first_open() const;
  void leave_out(const char* result, const std::string& why);
  ChildEnd work(const std::function<void(const Send&)>& body);
  void hear(const Message& message);
  void settle(std::size_t index, const std::string& result, const std::string& text,
              const Message& told = Message::object());
  void settle_process(const char* result, const std::string& text);

  const Items& items_;
  const Subject& subject_;
  const Choice& choice_;
  const std::string id_;
  Report& report_;
  const Clock::time_point start_ = Clock::now();
  Totals totals_;
  std::vector<bool> settled_;           // which items have their verdict
  std::optional<std::size_t> running_;  // the case that has begun and not ended
  std::optional<Message> ended_;        // of a plugin's case: its verdict, if its process ends well
  bool contradicted_ = false;           // a verdict came from this process that no case gave
  std::string last_;                    // the case that ended last in this process
  std::string stopped_;                 // why the process of the operators runs no case
  bool out_of_time_ = false;
  std::string device_;
  std::vector<std::string> offered_;
  std::set<std::string> launched_;
};

}  // namespace frt::conformance
