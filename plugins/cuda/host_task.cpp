// SPDX-License-Identifier: Apache-2.0
#include "host_task.hpp"

#include <cstring>
#include <exception>

#include "device.hpp"

namespace frt::cuda {
namespace {

void run(const HostCopy& copy) {
  std::memcpy(copy.target, copy.source, copy.bytes);
}
void run(const HostFill& fill) {
  std::memset(fill.target, fill.value, fill.bytes);
}
void run(const HostCall& call) {
  call.function(call.user);
}

}  // namespace

void CUDART_CB keep_task(void* raw) noexcept {
  const auto& task = *static_cast<const HostTask*>(raw);
  try {
    std::visit([](const auto& work) { run(work); }, task.work);
  } catch (const std::exception& error) {
    task.device->report_late(FRT_ERR_CALLBACK, error.what());
  } catch (...) {
    task.device->report_late(FRT_ERR_CALLBACK, "an exception of unknown type");
  }
}

void CUDART_CB drop_task(void* raw) noexcept {
  keep_task(raw);
  delete static_cast<HostTask*>(raw);
}

}  // namespace frt::cuda
