// SPDX-License-Identifier: Apache-2.0
#include "kernel_table.hpp"

#include <algorithm>
#include <cstring>
#include <frt/error.hpp>
#include <frt/plugin.hpp>
#include <string>

#include "backend_stream.hpp"

namespace frt::cuda {

void KernelList::add_entry(const Entry& entry) {
  auto& table = static_cast<KernelTable&>(*this);  // every list is one
  auto kernel = std::make_unique<KernelTable::Kernel>(KernelTable::Kernel{device_, entry, nullptr});
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

void KernelList::add_variant(const char* operation, const char* name, const Needs& needs,
                             bool supports_all, const void* address) {
  auto& table = static_cast<KernelTable&>(*this);
  auto& row = table.variants_.emplace_back();
  row.operation = operation;
  row.name = name;
  row.needs = needs;
  row.needs_text = needs_text(needs);
  row.supports_all = supports_all;
  table.variant_at_[address] = &row;
}

void KernelTable::add_single_variants() {
  for (const auto& kernel : kernels_) {
    const auto has_table = [&](const VariantRow& row) {
      return std::strcmp(row.operation, kernel->entry.name) == 0;
    };
    if (std::ranges::any_of(variants_, has_table)) continue;
    add_variant(kernel->entry.name, "kernel", {}, true, kernel.get());
    kernel->single = &variants_.back();
  }
}

void KernelTable::count_launch(const void* variant) noexcept {
  variant_at_.find(variant)->second->launches.fetch_add(1, std::memory_order_relaxed);
}

bool KernelTable::is_offered(uint32_t index) {
  const VariantRow& row = variants_[index];
  if (!device_.offers(row.needs)) return false;
  return std::none_of(variants_.begin(), variants_.begin() + index, [&](const VariantRow& before) {
    return before.supports_all && std::strcmp(before.operation, row.operation) == 0 &&
           device_.offers(before.needs);
  });
}

void KernelTable::read_variant(uint32_t index, frt_kernel_variant& variant) {
  if (index >= variants_.size()) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "kernel variant " + std::to_string(index) + ": there are " +
                                          std::to_string(variants_.size()));
  }
  const VariantRow& row = variants_[index];
  variant.operation = row.operation;
  variant.name = row.name;
  variant.needs = row.needs_text.c_str();
  variant.offered = is_offered(index) ? 1 : 0;
  variant.launches = row.launches.load(std::memory_order_relaxed);
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
    if (kernel.single) kernel.single->launches.fetch_add(1, std::memory_order_relaxed);
  });
}

}  // namespace frt::cuda
