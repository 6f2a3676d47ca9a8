// SPDX-License-Identifier: Apache-2.0
#include "host_task.hpp"

#include <cstring>

#include "device.hpp"

namespace frt::cuda {
namespace {

void run(Device&, const HostCopy& copy) noexcept {
  std::memcpy(copy.target, copy.source, copy.bytes);
}
void run(Device&, const HostFill& fill) noexcept {
  std::memset(fill.target, fill.value, fill.bytes);
}
void run(Device& device, const HostCall& call) noexcept {
  frt_error error;
  error.message[0] = '\0';
  if (call.function(call.user, &error) == FRT_OK) return;
  error.message[FRT_ERROR_CAPACITY - 1] = '\0';
  device.report_late(FRT_ERR_CALLBACK, error.message);
}

}  // namespace

void CUDART_CB keep_task(void* raw) noexcept {
  const auto& task = *static_cast<const HostTask*>(raw);
  std::visit([&](const auto& work) { run(*task.device, work); }, task.work);
}

void CUDART_CB drop_task(void* raw) noexcept {
  keep_task(raw);
  delete static_cast<HostTask*>(raw);
}

}  // namespace frt::cuda
