# FRT_PRECOMPILED_HEADERS, of the preset asan: the headers of precompiled.hpp are compiled once, not with
# every source, because half of a compilation goes into them. The release build compiles every source from its own
# includes and so finds one that is missing.
#
# clang takes headers that were precompiled with other definitions (-D) than a source has, but not with other
# sanitizers, and it tells code that is optimised from code that is not. So there is one set of them for each:
#
#   frt_precompiled          sources of the tree
#   frt_precompiled_fuzzed   sources that libFuzzer looks at (tests/fuzz)
#   frt_precompiled_tests    tests, with doctest (frt_test_sources)
#   frt_precompiled_numeric  numeric ones
option(FRT_PRECOMPILED_HEADERS "Compile the headers of the libraries once (clang)" OFF)

# frt_add_precompiled(<name> <options...>): headers for targets whose sources have these options.
# frt_use_precompiled(<name> <targets...>): targets that take them.
if(NOT FRT_PRECOMPILED_HEADERS)
  function(frt_add_precompiled)
  endfunction()
  function(frt_use_precompiled)
  endfunction()
  function(frt_precompile)
  endfunction()
  return()
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "FRT_PRECOMPILED_HEADERS is ON and the compiler is ${CMAKE_CXX_COMPILER_ID}: use clang++, or set it OFF")
endif()
# A program takes the headers that a library takes.
target_compile_options(frt_sanitize INTERFACE -fPIC)

set(FRT_PRECOMPILED_HEADER ${CMAKE_CURRENT_LIST_DIR}/precompiled.hpp)
function(frt_add_precompiled name)
  set(source ${PROJECT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT ${source})
  add_library(${name}_options INTERFACE)  # behind those of frt_sanitize, as options of a source are
  target_compile_options(${name}_options INTERFACE ${ARGN})
  target_link_libraries(${name} PRIVATE frt_sanitize frt_warnings ${name}_options)
  target_compile_features(${name} PRIVATE cxx_std_20)
  # Without the time in it the file is the same whenever it is made, and ccache knows what includes it.
  target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  target_precompile_headers(${name} PRIVATE ${FRT_PRECOMPILED_HEADER})
endfunction()

function(frt_use_precompiled name)
  set_target_properties(${ARGN} PROPERTIES PRECOMPILE_HEADERS_REUSE_FROM ${name})
endfunction()

# Call at the end: the targets of a folder and of those below it that have no headers yet take frt_precompiled.
function(frt_precompile folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    foreach(property TYPE SOURCES CXX_VISIBILITY_PRESET PRECOMPILE_HEADERS PRECOMPILE_HEADERS_REUSE_FROM)
      get_target_property(${property} ${target} ${property})
    endforeach()
    # clang takes no headers of another visibility, and CMake wants some for every language that a target has.
    if(TYPE MATCHES "^(EXECUTABLE|(STATIC|SHARED|MODULE|OBJECT)_LIBRARY)$" AND NOT SOURCES MATCHES "[.]c(;|$)"
       AND CXX_VISIBILITY_PRESET STREQUAL "hidden"
       AND NOT PRECOMPILE_HEADERS AND NOT PRECOMPILE_HEADERS_REUSE_FROM)
      frt_use_precompiled(frt_precompiled ${target})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(one IN LISTS folders)
    frt_precompile(${one})
  endforeach()
endfunction()

frt_add_precompiled(frt_precompiled)
