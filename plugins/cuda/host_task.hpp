// SPDX-License-Identifier: Apache-2.0
// host_task.hpp - work that the host does in stream order: the user's functions, and copies and
// fills of ordinary host memory.
//
// CUDA would read or write ordinary memory when the copy is submitted, or wait for the stream; a
// task does it when its turn comes, also each time a recorded executable runs.
#pragma once

#include <cuda_runtime_api.h>
#include <frt/backend.h>

#include <cstdint>
#include <variant>

namespace frt::cuda {

class Device;

struct HostCopy {
  void* target;
  const void* source;
  uint64_t bytes;
};
struct HostFill {
  void* target;
  uint64_t bytes;
  uint8_t value;
};
struct HostCall {
  frt_host_function function;
  void* user;
};

struct HostTask {
  Device* device;
  std::variant<HostCopy, HostFill, HostCall> work;
};

// For cudaLaunchHostFunc, `task` being a HostTask: keep_task() leaves it alone (an executable owns
// it), drop_task() deletes it. If the device is lost before its turn, CUDA never calls and the few
// bytes of the task stay.
void CUDART_CB keep_task(void* task) noexcept;
void CUDART_CB drop_task(void* task) noexcept;

}  // namespace frt::cuda
