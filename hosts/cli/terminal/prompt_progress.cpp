// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/prompt_progress.hpp"

#include <frt/progress.h>

namespace frt::host {

std::function<void(uint64_t done, uint64_t total)> PromptProgress::callback() {
  if (!draw_) return nullptr;
  start_ = std::chrono::steady_clock::now();
  return [this](uint64_t done, uint64_t total) {
    shown_ = shown_ || (done < total && std::chrono::steady_clock::now() - start_ >= kPatience);
    if (shown_) view_.report("prompt", FRT_PROGRESS_ITEMS, done, total);
  };
}

}  // namespace frt::host
