// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/load_view.hpp"

#include "cli/terminal/output.hpp"
#include "cli/terminal/signals.hpp"

namespace frt::host {

void LoadView::progress(std::string_view phase, uint32_t unit, uint64_t done, uint64_t total) {
  progress_.report(phase, unit, done, total);
}

void LoadView::phase_ended() {
  progress_.finish();
}

bool LoadView::cancelled() const {
  return InterruptGuard::requested();
}

void LoadView::ready(const ReadyModel& model) {
  const std::string phases = progress_.take_breakdown();
  if (quiet_) return;
  print_err(
      "{} on {} ({}, {}): {}; weights {}, state {}\n"
      "ready in {:.2f} s ({})\n",
      model.name, model.device, model.backend, model.product, model.architecture,
      format_bytes(model.weight_bytes), format_bytes(model.state_bytes), model.seconds, phases);
}

}  // namespace frt::host
