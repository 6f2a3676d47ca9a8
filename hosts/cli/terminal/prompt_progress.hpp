// SPDX-License-Identifier: Apache-2.0
// prompt_progress.hpp - a bar while a long prompt is read.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "cli/terminal/progress_view.hpp"

namespace frt::host {

class PromptProgress {
 public:
  // `draw`: App::draws_progress().
  explicit PromptProgress(bool draw) : draw_(draw), view_(draw, true) {}

  // For GenerationReader::on_prefill, while this object lives; null if nothing is drawn. What is
  // read within kPatience shows no bar.
  std::function<void(uint64_t done, uint64_t total)> callback();
  // Takes the bar away.
  void finish() { view_.finish(); }

 private:
  static constexpr std::chrono::milliseconds kPatience{300};

  bool draw_;
  ProgressView view_;
  std::chrono::steady_clock::time_point start_;
  bool shown_ = false;
};

}  // namespace frt::host
