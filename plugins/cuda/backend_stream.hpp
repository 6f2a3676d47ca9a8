// SPDX-License-Identifier: Apache-2.0
// backend_stream.hpp - what the backend's table makes of a CUDA stream: eager, or recording an
// executable.
//
// Streams of our own do not wait for the default stream, nor it for them; a wrapped default stream
// is ordered with others by events, like any stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "host_task.hpp"
#include "stream.hpp"

namespace frt::cuda {

class BackendDevice;
class Event;
class Exec;
class Lane;
class ScratchPool;

class BackendStream final : public Stream {
 public:
  // A stream of our own. `priority`: 0 normal, negative more urgent; clamped.  [setup]
  BackendStream(BackendDevice& device, int32_t priority);
  // Somebody else's stream; NULL is the default stream. Not destroyed here.  [setup]
  BackendStream(BackendDevice& device, cudaStream_t foreign);
  ~BackendStream();

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
  frt_status copy(const frt_backend_copy* copies,
                  uint64_t count);  // FRT_SPACE_HOST: [driver], else [hot]
  // Device memory of the device of `from` to this one's. Neither stream may be recording.
  frt_status copy_peer(void* target, BackendStream& from, const void* source, uint64_t bytes);
  frt_status fill(void* pointer, frt_space space, uint64_t bytes, uint8_t value);  // as copy
  frt_status call(frt_host_function function, void* user);
  frt_status record(Event& event) noexcept;
  frt_status wait(Event& event) noexcept;
  frt_status launch(Exec& exec) noexcept;
  frt_status sync() noexcept;
  void capture_begin();
  std::unique_ptr<Exec> capture_end();
  void capture_abort() noexcept;

 private:
  friend class CoResidentLaunch;
  friend class Stream;
  struct Recording;

  frt_status copy_batch(const frt_backend_copy* copies, uint64_t count) noexcept;
  void copy_staged(const frt_backend_copy& copy);
  void submit_task(const HostTask& task);
  void refuse_foreign_capture();
  void use_pool(const std::shared_ptr<ScratchPool>& pool);
  frt_status refuse_in_capture(const char* what) noexcept;

  const bool owned_;
  std::atomic<bool> shared_;
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<ScratchPool> pool_;  // shared with the executables recorded here
  std::unique_ptr<Recording> recording_;
};

// Every Stream is one.
inline BackendStream& behind(Stream& stream) noexcept {
  return static_cast<BackendStream&>(stream);
}
inline const BackendStream& behind(const Stream& stream) noexcept {
  return static_cast<const BackendStream&>(stream);
}

}  // namespace frt::cuda
