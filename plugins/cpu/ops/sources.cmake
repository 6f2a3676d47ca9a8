# The operator families: one file each, and what they share. Paths are relative to plugins/cpu.
list(APPEND FRT_CPU_OP_SOURCES
  ops/registry.cpp
  ops/rows.cpp
)
