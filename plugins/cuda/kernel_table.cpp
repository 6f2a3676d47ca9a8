// SPDX-License-Identifier: Apache-2.0
#include "kernel_table.hpp"

#include <frt/error.hpp>
#include <frt/plugin.hpp>
#include <string>

#include "backend_stream.hpp"

namespace frt::cuda {

void KernelList::add_entry(const Entry& entry) {
  auto& table = static_cast<KernelTable&>(*this);  // every list is one
  auto kernel = std::make_unique<KernelTable::Kernel>(KernelTable::Kernel{device_, entry});
  frt_kernel_desc descriptor{};
  descriptor.struct_size = sizeof descriptor;
  descriptor.args_size = entry.args_size;
  descriptor.name = entry.name;
  descriptor.inputs = entry.activations.inputs;
  descriptor.outputs = entry.activations.outputs;
  descriptor.weights = entry.weights.data();
  descriptor.weight_count = static_cast<uint32_t>(entry.weights.size());
  descriptor.kernel.self = kernel.get();
  descriptor.kernel.launch = &KernelTable::launch;
  table.descriptors_.push_back(descriptor);
  table.kernels_.push_back(std::move(kernel));
}

void KernelList::refuse_size(const char* operator_name, uint64_t bytes, uint64_t expected) {
  throw Error(FRT_ERR_ABI, std::string(operator_name) + ": the argument struct has " +
                               std::to_string(bytes) + " bytes, expected " +
                               std::to_string(expected) + "; rebuild the caller");
}

frt_status KernelTable::launch(void* self, frt_backend_stream stream, const void* args,
                               frt_error* error) {
  return guard(error, [&] {
    const auto& kernel = *static_cast<const Kernel*>(self);
    const Entry& entry = kernel.entry;
    if (!stream || !args) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(entry.name) + ": stream or args is NULL");
    }
    auto& target = *object<BackendStream>(stream);
    const BackendStream::OperatorScope scope(target, kernel.device, entry.name);
    entry.call(entry.function, entry.name, target, args);
  });
}

}  // namespace frt::cuda
