// SPDX-License-Identifier: Apache-2.0
// A bar is repainted at most 20 times a second:
//   weights  [=========>          ]  48%  1.2 GiB of 2.5 GiB  3.1 GiB/s  0:01 left
#include "cli/terminal/progress_view.hpp"

#include <fmt/format.h>
#include <frt/progress.h>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <cstdio>

#include "cli/terminal/output.hpp"

namespace frt::host {
namespace {

constexpr auto kRepaint = std::chrono::milliseconds(50);
constexpr int kBarWidth = 24;

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string amount(uint32_t unit, uint64_t value) {
  return unit == FRT_PROGRESS_BYTES ? format_bytes(value) : fmt::format("{}", value);
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

void ProgressView::report(std::string_view phase, uint32_t unit, uint64_t done, uint64_t total) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (!open_ || phases_.back().name != phase) {
    if (open_) close(phases_.back());
    phases_.push_back({std::string(phase), unit, 0, 0, now, now});
    open_ = true;
    painted_ = {};
  }
  Phase& current = phases_.back();
  current.done = done;
  current.total = total;
  current.end = now;
  if (total != 0 && done == total) {
    close(current);
    open_ = false;
  } else if (draw_ && now - painted_ >= kRepaint) {
    paint(current);
    painted_ = now;
  }
}

void ProgressView::finish() {
  const std::lock_guard lock(mutex_);
  if (open_) close(phases_.back());
  open_ = false;
}

std::string ProgressView::take_breakdown() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const Phase& phase : phases_) {
    const double elapsed = seconds(phase.end - phase.start);
    text += fmt::format("{}{} {:.2f} s", text.empty() ? "" : ", ", phase.name, elapsed);
    if (phase.unit == FRT_PROGRESS_BYTES && phase.done > 0 && elapsed > 0) {
      text += fmt::format(" at {:.1f} GB/s", static_cast<double>(phase.done) / elapsed / 1e9);
    }
  }
  phases_.clear();
  open_ = false;
  return text;
}

void ProgressView::paint(const Phase& phase) {
  const double elapsed = seconds(phase.end - phase.start);
  std::string line = fmt::format("\r\x1b[K{:<10}", io::printable(phase.name));
  if (phase.total != 0) {
    const double share = static_cast<double>(phase.done) / static_cast<double>(phase.total);
    const int filled = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
    line +=
        fmt::format("[{}{}] {:3.0f}%  {} of {}", std::string(static_cast<std::size_t>(filled), '='),
                    std::string(static_cast<std::size_t>(kBarWidth - filled), ' '), share * 100,
                    amount(phase.unit, phase.done), amount(phase.unit, phase.total));
    if (phase.unit == FRT_PROGRESS_BYTES && elapsed > 0.2 && phase.done > 0) {
      const double rate = static_cast<double>(phase.done) / elapsed;
      const auto left = static_cast<int64_t>(static_cast<double>(phase.total - phase.done) / rate);
      line += fmt::format("  {}/s  {}:{:02} left", format_bytes(static_cast<uint64_t>(rate)),
                          left / 60, left % 60);
    }
  } else {
    line += amount(phase.unit, phase.done);
  }
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void ProgressView::close(Phase& phase) {
  phase.end = Clock::now();
  if (draw_) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  } else if (!quiet_) {
    print_err("{}: {} in {:.2f} s\n", phase.name, amount(phase.unit, phase.done),
              seconds(phase.end - phase.start));
  }
}

}  // namespace frt::host
