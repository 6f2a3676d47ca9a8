// SPDX-License-Identifier: Apache-2.0
// stream.hpp - a CUDA stream: eager, or recording an executable.
//
// Operators see three things: native(), where device code is launched; device(); and scratch(),
// working memory. What is launched while the stream captures becomes a node of the executable.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <cstddef>
#include <memory>

namespace frt::cuda {

class Device;
class Event;
class Exec;
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
  cudaStream_t native() const noexcept { return stream_; }
  bool capturing() const noexcept { return capturing_; }

  // Working memory of the operator that is being launched: at least `bytes`, aligned to 256,
  // content undefined. Valid until the next operator of this stream; one call per operator (cut the
  // block yourself). While capturing, the executable keeps it alive, and executables recorded on
  // one stream never overlap (graph.hpp), so they share it. May allocate: [setup] or [driver].
  void* scratch(std::size_t bytes);

  // Around one operator: makes the device current and refuses streams of another device.
  class OperatorScope {
   public:
    OperatorScope(Stream& stream, const Device& kernel_device, const char* operator_name);
  };

  // ---- frt_backend_v1 -----------------------------------------------------------------------
  frt_status copy(const frt_backend_copy* copies, uint64_t count);  // [hot]
  frt_status fill(void* pointer, frt_space space, uint64_t bytes, uint8_t value);
  frt_status call(void (*function)(void* user), void* user);
  frt_status record(Event& event);
  frt_status wait(Event& event);
  frt_status launch(Exec& exec);
  frt_status sync();
  void capture_begin();
  std::unique_ptr<Exec> capture_end();
  void capture_abort() noexcept;

 private:
  Device& device_;
  cudaStream_t stream_ = nullptr;
  bool owned_ = false;
  bool capturing_ = false;
  std::shared_ptr<ScratchPool> scratch_;  // shared with the executables recorded here
};

}  // namespace frt::cuda
