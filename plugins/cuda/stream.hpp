// SPDX-License-Identifier: Apache-2.0
// stream.hpp - a CUDA stream: eager, or recording an executable.
//
// Operators see three things: native(), where device code is launched; device(); and scratch(),
// working memory. What is launched while the stream captures becomes a node of the executable.
//
// Streams of our own do not wait for the default stream, nor it for them; a wrapped default stream
// is ordered with others by events, like any stream.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include "host_task.hpp"

namespace frt::cuda {

class Device;
class Event;
class Exec;
class Lane;
class ScratchPool;

class Stream {
 public:
  // A stream of our own. `priority`: 0 normal, negative more urgent; clamped.  [setup]
  Stream(Device& device, int32_t priority);
  // Somebody else's stream; NULL is the default stream. Not destroyed here.  [setup]
  Stream(Device& device, cudaStream_t foreign);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const noexcept { return device_; }
  // For launching: what is submitted next is not settled().
  cudaStream_t native() noexcept {
    settled_ = false;
    return stream_;
  }
  bool capturing() const noexcept { return recording_ != nullptr; }

  // Working memory of the operator that is being launched: at least `bytes`, aligned to 256,
  // content undefined. Valid until the next operator of this stream; one call per operator (cut the
  // block yourself). While capturing, the executable keeps it alive, and executables recorded on
  // one stream never overlap (graph.hpp), so they share it. May allocate: [setup] or [driver].
  void* scratch(std::size_t bytes);

  // Before the launch of a kernel whose blocks wait for each other, so that all of them must be on
  // the device at once: two such kernels of two streams, each with a part of the processors, would
  // wait for ever. What this stream submits next, or the executable it records, runs behind every
  // other user of the right. Launch before the lock goes.  [driver]
  [[nodiscard]] std::unique_lock<std::mutex> gang();

  // Whether the next kernel may read states, windows, caches and sequences before its pdl_wait():
  // the last thing submitted is a kernel that lets the next one in only after its own wait, so that
  // everything older is complete, and that writes none of these itself. Asked before native().
  // settle() is called behind the launch of such a kernel.
  bool settled() const noexcept { return settled_ && !shared_; }
  void settle() noexcept { settled_ = true; }
  // Gives the stream to somebody who may submit at any time.
  cudaStream_t share() noexcept {
    shared_ = true;
    return stream_;
  }

  // Around one operator: makes the device current and refuses streams of another device.
  class OperatorScope {
   public:
    OperatorScope(Stream& stream, const Device& kernel_device, const char* operator_name);
  };

  // ---- frt_backend_v1 -----------------------------------------------------------------------
  frt_status copy(const frt_backend_copy* copies, uint64_t count);  // [hot] unless SPACE_HOST
  frt_status fill(void* pointer, frt_space space, uint64_t bytes, uint8_t value);
  frt_status call(void (*function)(void* user), void* user);
  frt_status record(Event& event) noexcept;
  frt_status wait(Event& event) noexcept;
  frt_status launch(Exec& exec) noexcept;
  frt_status sync() noexcept;
  void capture_begin();
  std::unique_ptr<Exec> capture_end();
  void capture_abort() noexcept;

 private:
  struct Recording;

  frt_status copy_batch(const frt_backend_copy* copies, uint64_t count) noexcept;
  void copy_staged(const frt_backend_copy& copy);
  void submit_task(const HostTask& task);
  void refuse_foreign_capture();
  void use_pool(const std::shared_ptr<ScratchPool>& pool);
  frt_status refuse_in_capture(const char* what) noexcept;

  Device& device_;
  cudaStream_t stream_ = nullptr;
  const bool owned_;
  bool settled_ = false;
  std::atomic<bool> shared_;
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<ScratchPool> pool_;  // shared with the executables recorded here
  std::unique_ptr<Recording> recording_;
};

}  // namespace frt::cuda
