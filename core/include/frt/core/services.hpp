// SPDX-License-Identifier: Apache-2.0
// services.hpp - what this host gives to its plugins: the exec table, the arenas, the log, and
// progress. One object for all plugins; it outlives them.
#pragma once

#include <frt/progress.h>
#include <frt/core/log.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace frt::core {

// Receives progress of `source` (a plugin's id or a part of the program). Returns FRT_OK, or
// FRT_ERR_CANCELLED to stop the work. Called on any thread.
using ProgressSink = std::function<frt_status(std::string_view source, std::string_view phase,
                                              uint32_t unit, uint64_t done, uint64_t total)>;

class HostServices {
 public:
  // `log` is borrowed; `progress` may be empty.
  explicit HostServices(Log& log, ProgressSink progress = {})
      : log_(log), progress_(std::move(progress)) {}

  Log& log() noexcept { return log_; }
  // Reports progress; FRT_OK without a sink. What a sink throws becomes FRT_ERR_CALLBACK.  [any]
  frt_status report(std::string_view source, std::string_view phase, uint32_t unit, uint64_t done,
                    uint64_t total) noexcept;

 private:
  Log& log_;
  ProgressSink progress_;
};

}  // namespace frt::core
