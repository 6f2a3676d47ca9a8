// SPDX-License-Identifier: Apache-2.0
#include "node.hpp"

#include <frt/plugin.hpp>

#include "device.hpp"
#include "stream.hpp"

namespace frt::cpu {

KernelList::~KernelList() = default;

void KernelList::add_entry(std::unique_ptr<Entry> entry, std::size_t args_size,
                           Activations activations, std::span<const frt_weight_format> weights) {
  frt_kernel_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.args_size = static_cast<uint32_t>(args_size);
  desc.name = entry->name;
  desc.inputs = activations.inputs;
  desc.outputs = activations.outputs;
  desc.weights = weights.data();
  desc.weight_count = static_cast<uint32_t>(weights.size());
  desc.kernel = {entry.get(), &KernelList::launch, &KernelList::supports};
  entries_.push_back(std::move(entry));
  descriptors_.push_back(desc);
}

frt_status KernelList::launch(void* self, frt_backend_stream stream, const void* args,
                              frt_error* error) {
  return guard(error, [&] {
    auto& entry = *static_cast<Entry*>(self);
    auto* target = object<Stream>(stream);
    if (!target || !args) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  std::string(entry.name) + ": needs a stream and an argument struct");
    }
    if (&target->device() != &entry.device) {
      throw Error(FRT_ERR_MISMATCH, std::string(entry.name) +
                                        ": the stream belongs to another device than the kernel");
    }
    target->submit(entry.prepare(args));
    entry.launches.fetch_add(1, std::memory_order_relaxed);
  });
}

void KernelList::read_variant(uint32_t index, frt_kernel_variant& variant) const {
  if (index >= entries_.size()) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "kernel variant " + std::to_string(index) + ": there are " +
                                          std::to_string(entries_.size()));
  }
  variant.operation = entries_[index]->name;
  variant.name = "kernel";
  variant.needs = "";
  variant.launches = entries_[index]->launches.load(std::memory_order_relaxed);
  variant.offered = 1;
}

frt_status KernelList::supports(void* self, const void* args, frt_error* error) {
  return guard(error, [&] {
    auto& entry = *static_cast<Entry*>(self);
    if (!args) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(entry.name) + ": needs an argument struct");
    }
    entry.prepare(args);
  });
}

}  // namespace frt::cpu
