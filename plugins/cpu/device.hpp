// SPDX-License-Identifier: Apache-2.0
// device.hpp - one opened CPU device: its options, its worker threads, its kernels and streams.
//
// The machine is one device, ordinal 0. Opening it several times is allowed (tests do); each
// opening has its own threads. An operator's `prepare` reads options() and isa(); its node gets
// the pool when it runs.
#pragma once

#include <frt/backend.h>

#include <cstdint>
#include <deque>
#include <frt/failed_call.hpp>
#include <memory>
#include <mutex>
#include <vector>

#include "counter.hpp"
#include "isa.hpp"
#include "node.hpp"
#include "pool.hpp"

namespace frt::cpu {

class Stream;

// How operators compute.
enum class Numerics : uint8_t {
  kFast,       // the machine's vector units, bf16 products, oneDNN
  kReference,  // f32, one fixed order of reduction, whatever the machine
};

// The options of the plugin's schema, per device.
struct DeviceOptions {
  int threads = 0;  // workers including the stream's own thread; 0: one per physical core
  Numerics numerics = Numerics::kFast;
  Isa isa = machine_isa();
};

class Device {
 public:
  // Starts the workers and builds the kernel list.  [setup]
  explicit Device(const DeviceOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // With `threads` resolved: never 0.  [any]
  const DeviceOptions& options() const noexcept { return options_; }
  Isa isa() const noexcept { return options_.isa; }
  bool reference_numerics() const noexcept { return options_.numerics == Numerics::kReference; }

  Pool& pool() noexcept { return pool_; }
  const KernelList& kernels() const noexcept { return kernels_; }
  // What went wrong in the last call that failed with a code alone.  [any]
  FailedCall& failed_call() noexcept { return failed_call_; }

  // How long a waiting thread watches its counter before it sleeps.  [any]
  SpinBudget worker_spin() const noexcept { return worker_spin_; }
  SpinBudget host_spin() const noexcept { return host_spin_; }

  // Streams announce themselves. The counter handed out lives as long as the device, so that an
  // event may still refer to it when its stream is gone; a later stream goes on counting.  [setup]
  Counter& attach(Stream& stream);
  void detach(Stream& stream, Counter& progress) noexcept;

  // Waits for all streams; the first late error among them.  [driver]
  frt_status sync();

 private:
  DeviceOptions options_;
  SpinBudget worker_spin_;
  SpinBudget host_spin_;
  Pool pool_;
  KernelList kernels_;
  FailedCall failed_call_;
  std::mutex streams_mutex_;
  std::vector<Stream*> streams_;
  std::deque<Counter> counters_;
  std::vector<Counter*> idle_counters_;
};

// How many threads work in parallel here: physical cores within the affinity mask of the process,
// and no more than the CPU quota of its control group.  [setup]
int default_threads();

// Fills `info`, honouring its struct_size. `ordinal` must be 0.  [setup]
void describe_device(uint32_t ordinal, frt_device_info& info);

}  // namespace frt::cpu
