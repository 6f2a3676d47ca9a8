// SPDX-License-Identifier: Apache-2.0
// system.hpp - what the operating system says about this machine and this process: small files of
// /proc and /sys, parsed. A file that is missing or unreadable counts as "no limit, not known".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace frt::cpu {

// No limit, or a limit that is not known.
inline constexpr uint64_t kUnlimited = UINT64_MAX;

// The processor as people know it, e.g. "AMD EPYC 9654 96-Core Processor".  [setup]
std::string processor_name();

// Distinct physical cores, and hardware threads, in the affinity mask of the process.  [setup]
struct CoreCount {
  int cores;
  int threads;
};
CoreCount available_cores();

// CPUs' worth of time the control group may use, e.g. 1.5; nothing if there is no quota.  [setup]
std::optional<double> cpu_quota();

// Bytes of the whole machine.  [any]
struct MachineMemory {
  uint64_t total;
  uint64_t available;  // without swapping, plus free swap
};
MachineMemory machine_memory();

// The control group's memory: limit, and what counts against it without reclaimable file pages.
// [any]
struct GroupMemory {
  uint64_t limit;  // kUnlimited: none
  uint64_t used;
};
GroupMemory group_memory();

// Names the calling thread for debuggers and `top`, cut to 15 characters.  [any]
void name_thread(const std::string& name) noexcept;

// Makes the calling thread at least as patient as `nice` (1 ... 19), or at least as urgent (-20 ...
// -1), as far as it may: raising urgency needs a privilege (CAP_SYS_NICE or RLIMIT_NICE).  [any]
void adjust_thread_nice(int nice) noexcept;

}  // namespace frt::cpu
