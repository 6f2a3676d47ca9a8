// SPDX-License-Identifier: Apache-2.0
// Maps for bulk tensor copies. The driver makes them; its function is looked up at run time, so
// that the plugin needs no library of the driver to be loaded.
#include "tensor_map.hpp"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <frt/error.hpp>
#include <iterator>
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

struct Layout {
  CUtensorMapDataType type;
  cuuint32_t dimensions;
  cuuint64_t sizes[5], strides[4];
  cuuint32_t box[5];
  CUtensorMapSwizzle swizzle;
};

CUtensorMap make(Device& device, const void* data, const Layout& layout, const char* what) {
  device.make_current();
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  if (!encode) {
    throw Error(FRT_ERR_UNSUPPORTED,
                "the driver has no cuTensorMapEncodeTiled; it is older than CUDA 12: update it");
  }
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult code =
      encode(&map, layout.type, layout.dimensions, const_cast<void*>(data), layout.sizes,
             layout.strides, layout.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, layout.swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) {
    std::string sizes = std::to_string(layout.sizes[0]);
    for (cuuint32_t i = 1; i < layout.dimensions; ++i) {
      sizes = std::to_string(layout.sizes[i]) + " x " + sizes;
    }
    throw Error(FRT_ERR_INTERNAL, std::string(what) +
                                      ": cuTensorMapEncodeTiled refused a matrix of " + sizes +
                                      ", code " + std::to_string(code));
  }
  return map;
}

}  // namespace

CUtensorMap make_tensor_map(Device& device, const BoxedMatrix& matrix, const char* what) {
  const bool bytes = matrix.dtype == FRT_DTYPE_F8_E4M3;
  const Layout layout{
      bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      matrix.matrices > 0 ? 3u : 2u,
      {static_cast<cuuint64_t>(matrix.cols), static_cast<cuuint64_t>(matrix.rows),
       static_cast<cuuint64_t>(matrix.matrices)},
      {static_cast<cuuint64_t>(matrix.row_stride), static_cast<cuuint64_t>(matrix.matrix_stride)},
      {bytes ? kBoxBytes : kBoxBytes / 2, static_cast<cuuint32_t>(matrix.box_rows), 1},
      CU_TENSOR_MAP_SWIZZLE_128B};
  return make(device, matrix.data, layout, what);
}

CUtensorMap make_boxed_tensor_map(Device& device, const BoxedTensor& tensor, const char* what) {
  Layout layout{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(tensor.rank), {}, {}, {},
                CU_TENSOR_MAP_SWIZZLE_128B};
  std::copy(std::begin(tensor.sizes), std::end(tensor.sizes), layout.sizes);
  std::copy(std::begin(tensor.strides), std::end(tensor.strides), layout.strides);
  std::copy(std::begin(tensor.box), std::end(tensor.box), layout.box);
  return make(device, tensor.data, layout, what);
}

CUtensorMap make_heads_map(Device& device, const BoxedHeads& heads, const char* what) {
  const Layout layout{
      CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      3,
      {static_cast<cuuint64_t>(heads.head_dim), static_cast<cuuint64_t>(heads.heads),
       static_cast<cuuint64_t>(heads.rows)},
      {static_cast<cuuint64_t>(heads.head_dim * 2), static_cast<cuuint64_t>(heads.row_stride)},
      {static_cast<cuuint32_t>(heads.box_columns), static_cast<cuuint32_t>(heads.box_heads),
       static_cast<cuuint32_t>(heads.box_rows)},
      heads.box_columns == kBoxBytes / 2 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_32B};
  return make(device, heads.data, layout, what);
}

}  // namespace frt::cuda
