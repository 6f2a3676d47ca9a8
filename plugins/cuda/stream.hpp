// SPDX-License-Identifier: Apache-2.0
// stream.hpp - a CUDA stream as operators see it: native(), where device code is launched;
// device(); scratch(), working memory; and whether what comes next may read early. What is launched
// while the stream captures becomes a node of the executable. BackendStream (backend_stream.hpp) is
// the rest: every Stream is one.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <cstddef>

namespace frt::cuda {

class Device;

class Stream {
 public:
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const noexcept { return device_; }
  // For launching: what is submitted next is not early_reads_safe().
  cudaStream_t native() noexcept {
    early_reads_safe_ = false;
    return stream_;
  }

  // Working memory of the operator that is being launched: at least `bytes`, aligned to 256,
  // content undefined. Valid until the next operator of this stream; one call per operator (cut the
  // block yourself). While capturing, the executable keeps it alive, and executables recorded on
  // one stream never overlap (graph.hpp), so they share it. May allocate: [setup] or [driver].
  void* scratch(std::size_t bytes);

  // Whether the next kernel may read states, windows, caches and sequences before its pdl_wait():
  // the last thing submitted is a kernel that lets the next one in only after its own wait, so that
  // everything older is complete, and that writes none of these itself. Asked before native().
  // allow_early_reads() is called behind the launch of such a kernel.
  bool early_reads_safe() const noexcept;
  void allow_early_reads() noexcept { early_reads_safe_ = true; }

 protected:
  explicit Stream(Device& device) : device_(device) {}
  ~Stream() = default;

  Device& device_;
  cudaStream_t stream_ = nullptr;
  bool early_reads_safe_ = false;
};

// The right to launch a kernel whose blocks wait for each other, so that all of them must be on the
// device at once: two such kernels of two streams, each with a part of the SMs, would wait
// for ever. Taken before the launch and held over it: what the stream submits next, or the
// executable it records, runs behind every other user of the right.  [driver]
class CoResidentLaunch {
 public:
  // NULL: the kernel needs no such right.
  explicit CoResidentLaunch(Stream* stream);
  ~CoResidentLaunch();
  CoResidentLaunch(const CoResidentLaunch&) = delete;
  CoResidentLaunch& operator=(const CoResidentLaunch&) = delete;

 private:
  Device* device_ = nullptr;
};

}  // namespace frt::cuda
