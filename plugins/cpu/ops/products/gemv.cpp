// SPDX-License-Identifier: Apache-2.0
#include "gemv.hpp"

namespace frt::cpu {

GemvKernel gemv_kernel(const Device& device, const Weight& weight, frt_dtype dtype) {
  if (device.reference_numerics()) return {gemv_plain, PanelKind::kFloat};
  if (dtype == FRT_DTYPE_BF16 && device.isa() >= Isa::kAvx512Bf16) {
    const GemvKernel kernel = gemv_bf16_kernel(weight);
    if (kernel.function) return kernel;
  }
  return {gemv_simd_function(weight.type), PanelKind::kFloat};
}

}  // namespace frt::cpu
