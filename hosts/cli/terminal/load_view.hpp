// SPDX-License-Identifier: Apache-2.0
// load_view.hpp - what a load shows on stderr: its phases, then one line of facts and one of times.
//
//     demo on cpu0 (frt.cpu, AMD EPYC 7B12): qwen3_5; weights 2.5 MiB, state 1.0 MiB
//     ready in 0.12 s (plugins 0.01 s, weights 0.08 s at 0.1 GB/s)
#pragma once

#include <string_view>

#include "cli/terminal/progress_view.hpp"
#include "runtime/load_observer.hpp"

namespace frt::host {

class LoadView final : public LoadObserver {
 public:
  // `draw`: bars on stderr. `quiet`: nothing is said of a model that is ready.
  LoadView(bool draw, bool quiet) : progress_(draw, true), quiet_(quiet) {}

  void progress(std::string_view phase, uint32_t unit, uint64_t done, uint64_t total) override;
  void phase_ended() override;
  bool cancelled() const override;  // by a signal (signals.hpp)
  void ready(const ReadyModel& model) override;

 private:
  ProgressView progress_;
  bool quiet_;
};

}  // namespace frt::host
