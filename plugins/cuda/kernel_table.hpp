// SPDX-License-Identifier: Apache-2.0
// kernel_table.hpp - where the kernels of a device and their variants are kept, and how
// frt_kernels_v1 starts one.
#pragma once

#include <frt/draft/kernel_variants.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel_list.hpp"

namespace frt::cuda {

class KernelTable final : public KernelList {
 public:
  explicit KernelTable(Device& device) : KernelList(device) {}

  // The frozen list, for frt_kernels_v1::list.  [setup]
  const std::vector<frt_kernel_desc>& descriptors() const noexcept { return descriptors_; }

  // Gives every operator without a table its one variant, "kernel". Once, when all are
  // registered.  [setup]
  void add_single_variants();
  // A launch of the variant at this address, which add_variant() was given.  [any]
  void count_launch(const void* variant) noexcept;
  // For frt_kernel_variants_draft: the number of variants, and one of them.  [driver]
  uint32_t variant_count() const noexcept { return static_cast<uint32_t>(variants_.size()); }
  void read_variant(uint32_t index, frt_kernel_variant& variant);

 private:
  friend class KernelList;
  struct VariantRow {
    const char* operation;
    const char* name;
    Needs needs;
    std::string needs_text;
    bool supports_all;
    std::atomic<uint64_t> launches{0};
  };
  struct Kernel {
    Device& device;
    Entry entry;
    VariantRow* single = nullptr;
  };

  // Whether some call can reach the variant: the device has what it needs, and no earlier one of
  // the operation supports every call there.
  bool is_offered(uint32_t index);
  static frt_status launch(void* self, frt_backend_stream stream, const void* args,
                           frt_error* error);

  std::vector<std::unique_ptr<Kernel>> kernels_;  // descriptors point at them
  std::vector<frt_kernel_desc> descriptors_;
  std::deque<VariantRow> variants_;  // their addresses stay
  std::unordered_map<const void*, VariantRow*> variant_at_;
};

}  // namespace frt::cuda
