// SPDX-License-Identifier: Apache-2.0
#include "narrow.hpp"

namespace frt::cpu {

NarrowKernel narrow_kernel(const Device& device, const Weight& weight, frt_dtype dtype) {
  if (device.reference_numerics()) return {narrow_plain, PanelKind::kFloat};
  if (dtype == FRT_DTYPE_BF16 && device.isa() >= Isa::kAvx512Bf16) {
    const NarrowKernel kernel = narrow_bf16_kernel(weight);
    if (kernel.function) return kernel;
  }
  return {narrow_simd_function(weight.form), PanelKind::kFloat};
}

}  // namespace frt::cpu
