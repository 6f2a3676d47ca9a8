// SPDX-License-Identifier: Apache-2.0
#include "kernel_list.hpp"

#include <frt/plugin.hpp>
#include <utility>

#include "stream.hpp"

namespace frt::cuda {

KernelList::~KernelList() = default;

void KernelList::add_entry(std::unique_ptr<Entry> entry, std::size_t args_size,
                           frt_dtype_set activations, frt_weight_set weights) {
  frt_kernel_desc descriptor{};
  descriptor.struct_size = sizeof descriptor;
  descriptor.args_size = static_cast<uint32_t>(args_size);
  descriptor.name = entry->name;
  descriptor.activations = activations;
  descriptor.weights = weights;
  descriptor.kernel.self = entry.get();
  descriptor.kernel.launch = &KernelList::launch_entry;
  descriptors_.push_back(descriptor);
  entries_.push_back(std::move(entry));
}

frt_status KernelList::launch_entry(void* self, frt_backend_stream stream, const void* args,
                                    frt_error* error) {
  return guard(error, [&] {
    auto& entry = *static_cast<Entry*>(self);
    if (!stream || !args) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(entry.name) + ": stream or args is NULL");
    }
    auto& target = *object<Stream>(stream);
    const Stream::OperatorScope scope(target, entry.device, entry.name);
    entry.launch(target, args);
  });
}

}  // namespace frt::cuda
