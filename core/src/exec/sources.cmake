# The exec contract and the state arenas. Paths are relative to core/.
set(FRT_CORE_EXEC_SOURCES
  src/capsule/row_blocks.cpp
  src/capsule/state.cpp
  src/capsule/table_ring.cpp
  src/exec/buffer.cpp
  src/exec/context.cpp
  src/exec/copy.cpp
  src/exec/exec_table.cpp
  src/exec/graph.cpp
  src/exec/kernel_registry.cpp
  src/exec/objects.cpp
  src/exec/plan.cpp
  src/exec/stream.cpp
  src/exec/variant_table.cpp)
