# The operator families: one file each, and what they share. Paths are relative to plugins/cuda.
# Every one of them is compiled for every architecture.
list(APPEND FRT_CUDA_OP_SOURCES
  ops/attention.cu
  ops/attention_append.cu
  ops/attention_general.cu
  ops/attention_split.cu
  ops/attention_tiles.cu
  ops/causal_conv.cu
  ops/checksum.cu
  ops/convert.cu
  ops/delta_recurrent.cu
  ops/delta_step.cu
  ops/elementwise.cu
  ops/embed.cu
  ops/fill.cu
  ops/gated_delta.cu
  ops/linear.cu
  ops/linear_narrow.cpp
  ops/linear_narrow_general.cu
  ops/linear_narrow_plan.cpp
  ops/linear_narrow_stream.cu
  ops/linear_wide.cu
  ops/linear_wide_fp8.cu
  ops/linear_wide_tile.cu
  ops/moe.cu
  ops/moe_decode.cu
  ops/moe_general.cu
  ops/moe_grouped.cu
  ops/moe_route.cu
  ops/norm.cu
  ops/registry.cpp
  ops/rows.cu
  ops/sample.cu
  ops/sample_draw.cu
  ops/tokens.cu
  ops/unpack.cu
)
