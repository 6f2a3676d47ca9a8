// SPDX-License-Identifier: Apache-2.0
// capsule_bench.hpp - what capsules cost on this model and device, against the floor that memory
// and the link set, and what they save: the time to the first token with and without one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lm/lm_model.hpp"

namespace frt::host {

struct CapsuleBenchOptions {
  std::vector<uint64_t> lengths = {8192, 32768};  // tokens of the prefix
  std::vector<uint64_t> sweep;                    // of the sweep; empty: none
  uint64_t suffix = 64;                           // new tokens behind the prefix
  uint32_t repetitions = 20;
  std::filesystem::path folder;  // for files; empty: none are measured
  uint64_t index = 1000;         // capsules of the index; 0: not measured
};

// Bytes per second: of device memory read; read and written by a copy; and of the link from pinned
// host memory. 0: unknown.
struct CapsuleRates {
  double read = 0, copy = 0, link = 0;
};
CapsuleRates measure_capsule_rates(const Context& context, uint64_t bytes);

// One row.
struct CapsuleTiming {
  std::string name;  // "snapshot, device"
  uint64_t tokens = 0;
  std::string clock;  // "device": from event to event; "host": until the host knew it
  std::vector<double> seconds;
  std::vector<double> submission_seconds;  // what the call took; empty: it is the same
  uint64_t bytes = 0;                      // that were copied; 0: nothing to tell
  double floor_seconds = 0;                // 0: none is known
};

struct CapsuleSweepPoint {
  uint64_t tokens = 0;
  std::vector<double> cold_seconds, capsule_seconds;  // to the first token
};

struct CapsuleBenchResult {
  CapsuleRates rates;
  std::vector<CapsuleTiming> timings;
  std::vector<CapsuleSweepPoint> sweep;
  std::vector<std::string> skipped;  // what could not be measured, and why
};

// `cancelled` is asked between measurements; FRT_ERR_CANCELLED.  [driver]
CapsuleBenchResult bench_capsules(const LmModel& model, const CapsuleBenchOptions& options,
                                  const frt_state_v1& states,
                                  const std::function<bool(const std::string& now)>& cancelled);

}  // namespace frt::host
