// SPDX-License-Identifier: Apache-2.0
// frt/draft/kernel_variants.hpp - the C++ face of frt/draft/kernel_variants.h: the table of a
// backend, and reading one.
#pragma once

#include <frt/draft/kernel_variants.h>

#include <cstdint>
#include <frt/error.hpp>
#include <frt/plugin.hpp>
#include <frt/reading.hpp>
#include <frt/table.hpp>
#include <frt/text.hpp>
#include <string>
#include <vector>

// What a host checks before it reads the table (frt/contracts.hpp).
FRT_CONTRACT(frt_kernel_variants_draft, FRT_EXT_KERNEL_VARIANTS, read,
             FRT_REQUIRED(frt_kernel_variants_draft, count),
             FRT_REQUIRED(frt_kernel_variants_draft, read));

namespace frt {

// The C table of a backend of frt/backend.hpp. Its devices have kernels().variant_count() noexcept
// and kernels().read_variant(index, frt_kernel_variant&), which throws FRT_ERR_OUT_OF_RANGE.
template <class Backend>
constexpr frt_kernel_variants_draft kernel_variants_table() {
  using Device = typename Backend::Device;
  return {
      .struct_size = sizeof(frt_kernel_variants_draft),
      .reserved = 0,
      .count = [](frt_backend_device device) -> uint32_t {
        return device ? object<Device>(device)->kernels().variant_count() : 0;
      },
      .read = [](frt_backend_device device, uint32_t index, frt_kernel_variant* variant,
                 frt_error* error) -> frt_status {
        return guard(error, [&] {
          if (!device || !variant) {
            throw Error(FRT_ERR_INVALID_ARGUMENT, "kernel variants: device or variant is NULL");
          }
          *variant = {};
          object<Device>(device)->kernels().read_variant(index, *variant);
        });
      },
  };
}

// One variant, with texts of its own.
struct KernelVariant {
  std::string operation, name, needs;
  uint64_t launches = 0;
  bool offered = false;
};

// All variants of an opened device, in the backend's order. `sender` names the plugin in messages.
// Throws what the plugin answers, and FRT_ERR_FORMAT for a text that is none.  [driver]
inline std::vector<KernelVariant> list_kernel_variants(const frt_kernel_variants_draft& table,
                                                       frt_backend_device device,
                                                       const std::string& sender) {
  std::vector<KernelVariant> variants;
  const uint32_t count = table.count(device);
  for (uint32_t i = 0; i < count; ++i) {
    frt_kernel_variant one{};
    frt_error error{};
    const frt_status status =
        contain(sender, "read", [&] { return table.read(device, i, &one, &error); });
    check(status, error, sender + ": reading a kernel variant");
    variants.push_back({std::string(checked_text(one.operation, sender + ": an operation")),
                        std::string(checked_text(one.name, sender + ": a kernel variant")),
                        std::string(checked_text(one.needs, sender + ": the needs of a variant")),
                        one.launches, one.offered != 0});
  }
  return variants;
}

}  // namespace frt
