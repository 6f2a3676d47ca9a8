// SPDX-License-Identifier: Apache-2.0
// kernel_table.hpp - where the kernels of a device are kept, and how frt_kernels_v1 starts one.
#pragma once

#include <memory>
#include <vector>

#include "kernel_list.hpp"

namespace frt::cuda {

class KernelTable final : public KernelList {
 public:
  explicit KernelTable(Device& device) : KernelList(device) {}

  // The frozen list, for frt_kernels_v1::list.  [setup]
  const std::vector<frt_kernel_desc>& descriptors() const noexcept { return descriptors_; }

 private:
  friend class KernelList;
  struct Kernel {
    Device& device;
    Entry entry;
  };

  static frt_status launch(void* self, frt_backend_stream stream, const void* args,
                           frt_error* error);

  std::vector<std::unique_ptr<Kernel>> kernels_;  // descriptors point at them
  std::vector<frt_kernel_desc> descriptors_;
};

}  // namespace frt::cuda
