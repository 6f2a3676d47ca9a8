# The operators, a folder for each family, and what they share (common). In a folder `sm90` is code
# for that architecture alone. Paths are relative to plugins/cuda.
#
#   FRT_CUDA_HOST_SOURCES   host code that calls no operator: part of the runtime
#   FRT_CUDA_TABLE_SOURCES  host code that selects among operators: compiled once
#   FRT_CUDA_OP_SOURCES     device code for every architecture, host code that is the same for all
#   FRT_CUDA_SIZED_SOURCES  device and host code that depend on the architecture (shared_size.cuh)
list(APPEND FRT_CUDA_HOST_SOURCES
  ops/common/call.cpp
  ops/common/tensor_map.cpp
  ops/common/weight.cpp
  ops/linear/gemv_plan.cpp
)
list(APPEND FRT_CUDA_TABLE_SOURCES
  ops/attention/attention.cpp
  ops/flow/layers.cpp
  ops/linear/gemm.cpp
  ops/linear/gemv.cpp
  ops/linear/linear.cpp
  ops/linear/resident.cpp
  ops/registry.cpp
)
list(APPEND FRT_CUDA_OP_SOURCES
  ops/attention/append.cu
  ops/attention/dense.cu
  ops/attention/dense_tiles.cu
  ops/attention/general.cu
  ops/attention/sm90/dense_tiles.cu
  ops/attention/sm90/dense_whole.cu
  ops/attention/sm90/tiles.cu
  ops/attention/split.cu
  ops/attention/tiles.cu
  ops/common/checksum.cu
  ops/common/convert.cu
  ops/common/elementwise.cu
  ops/common/embed.cu
  ops/common/fill.cu
  ops/common/norm.cu
  ops/common/patch_embed.cu
  ops/common/row_norm.cu
  ops/common/rows.cu
  ops/common/small_copies.cu
  ops/delta/causal_conv.cu
  ops/delta/chunk.cu
  ops/delta/commit.cu
  ops/delta/gated_delta.cu
  ops/delta/norm.cu
  ops/delta/prepare.cu
  ops/delta/recurrent.cu
  ops/delta/scan.cu
  ops/delta/sm90/scan.cu
  ops/delta/step.cu
  ops/dense/dense.cu
  ops/dense/fp8.cu
  ops/dense/skinny_fp8.cu
  ops/dense/sm90/wgmma.cu
  ops/dense/sm90/wgmma_fp8.cu
  ops/flow/flow.cu
  ops/flow/sm90/layers_fused.cu
  ops/flow/sm90/layers_rows104.cu
  ops/flow/sm90/layers_rows24.cu
  ops/flow/sm90/layers_rows56.cu
  ops/flow/step.cu
  ops/linear/dequantise.cu
  ops/linear/gemm_fp8.cu
  ops/linear/gemm_quantised.cu
  ops/linear/gemm_tile.cu
  ops/linear/gemm_w4a4.cu
  ops/linear/gemv_bf16.cu
  ops/linear/gemv_fp4.cu
  ops/linear/gemv_fp8.cu
  ops/linear/gemv_general.cu
  ops/linear/gemv_stream.cu
  ops/linear/gemv_streamed_x_bf16.cu
  ops/linear/gemv_streamed_x_quantised.cu
  ops/linear/quantise_fp4.cu
  ops/linear/resident_kernel.cu
  ops/linear/skinny_gemm.cu
  ops/moe/decode.cu
  ops/moe/decode_experts.cu
  ops/moe/dequantise.cu
  ops/moe/few_kernel.cu
  ops/moe/fused.cu
  ops/moe/fused_kernel.cu
  ops/moe/general.cu
  ops/moe/grouped.cu
  ops/moe/grouped_bf16.cu
  ops/moe/grouped_fp4.cu
  ops/moe/grouped_fp8.cu
  ops/moe/grouped_w4a4.cu
  ops/moe/moe.cu
  ops/moe/route.cu
  ops/moe/single.cu
  ops/moe/single_kernel.cu
  ops/moe/sm90/grouped.cu
  ops/moe/sort.cu
  ops/sample/draw.cu
  ops/sample/sample.cu
  ops/sample/tokens.cu
)
list(APPEND FRT_CUDA_SIZED_SOURCES
  ops/attention/dense_short.cu
)
