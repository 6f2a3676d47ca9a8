// SPDX-License-Identifier: Apache-2.0
// progress_view.hpp - shows phases of loading: bars on a terminal, a line per phase elsewhere, and
// the time each took at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

class ProgressView {
 public:
  // `draw`: repaint a bar on stderr. Otherwise, unless `quiet`, one line when a phase ends.
  ProgressView(bool draw, bool quiet) : draw_(draw), quiet_(quiet) {}

  // Reports `done` of `total` (0: unknown) units (FRT_PROGRESS_*) of a phase.  [any]
  void report(std::string_view phase, uint32_t unit, uint64_t done, uint64_t total);
  // Ends the current phase, if there is one.
  void finish();
  // One line: the phases since the last call, and their seconds. Forgets them.
  std::string take_breakdown();

 private:
  using Clock = std::chrono::steady_clock;
  struct Phase {
    std::string name;
    uint32_t unit = 0;
    uint64_t done = 0, total = 0;
    Clock::time_point start, end;
  };

  void paint(const Phase& phase);
  void close(Phase& phase);

  bool draw_, quiet_;
  std::mutex mutex_;
  std::vector<Phase> phases_;
  bool open_ = false;
  Clock::time_point painted_{};
};

// "1.5 GiB", "832 KiB", "12 B".
std::string format_bytes(uint64_t bytes);

}  // namespace frt::host
