# The operator families: one file each, and what they share. Paths are relative to plugins/cpu.
list(APPEND FRT_CPU_OP_SOURCES
  ops/attention.cpp
  ops/causal_conv.cpp
  ops/checksum.cpp
  ops/choose.cpp
  ops/embed.cpp
  ops/gated_delta.cpp
  ops/norm.cpp
  ops/reference.cpp
  ops/registry.cpp
  ops/rows.cpp
  ops/sample.cpp
  ops/tokens.cpp
)
