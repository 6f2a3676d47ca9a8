// SPDX-License-Identifier: Apache-2.0
// Maps for bulk tensor copies. The driver makes them; its function is looked up at run time, so
// that the plugin needs no library of the driver to be loaded.
#include "tensor_map.hpp"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <frt/error.hpp>
#include <string>

namespace frt::cuda {
namespace {

constexpr cuuint32_t kBoxBytes = 128;  // of a row, as many as the swizzle

PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                            12000, cudaEnableDefault, &result);
  if (code != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

CUtensorMap make_tensor_map(Device& device, const BoxedMatrix& matrix, const char* what) {
  device.make_current();
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  if (!encode) {
    throw Error(FRT_ERR_UNSUPPORTED,
                "the driver has no cuTensorMapEncodeTiled; it is older than CUDA 12: update it");
  }
  const bool bytes = matrix.dtype == FRT_DTYPE_F8_E4M3;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(matrix.cols),
                               static_cast<cuuint64_t>(matrix.rows),
                               static_cast<cuuint64_t>(matrix.matrices)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(matrix.row_stride),
                                 static_cast<cuuint64_t>(matrix.matrix_stride)};
  const cuuint32_t box[3] = {bytes ? kBoxBytes : kBoxBytes / 2,
                             static_cast<cuuint32_t>(matrix.box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult code =
      encode(&map, bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             matrix.matrices > 0 ? 3 : 2, const_cast<void*>(matrix.data), sizes, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) {
    throw Error(FRT_ERR_INTERNAL,
                std::string(what) + ": cuTensorMapEncodeTiled refused a matrix of " +
                    std::to_string(matrix.rows) + " x " + std::to_string(matrix.cols) + ", code " +
                    std::to_string(code));
  }
  return map;
}

}  // namespace frt::cuda
