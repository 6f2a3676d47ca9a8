# The exec contract and the state arenas. Paths are relative to core/.
set(FRT_CORE_EXEC_SOURCES
  include/frt/core/context.hpp
  include/frt/core/exec_table.hpp
  include/frt/core/state.hpp)
