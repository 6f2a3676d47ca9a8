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
  ops/elementwise.cu
  ops/embed.cu
  ops/fill.cu
  ops/gated_delta.cu
  ops/linear.cu
  ops/moe.cu
  ops/norm.cu
  ops/registry.cpp
  ops/rows.cu
  ops/sample.cu
  ops/sample_draw.cu
  ops/tokens.cu
)
