# FRT_PORTABLE: the build folder runs on another Linux machine.
#
# Libraries that come with an archive are linked statically. The others (Debian ships oneDNN and
# Highway as shared objects only, for instance) are copied to lib/ of the build folder, with what
# they need in turn; programs and plugins find them there through $ORIGIN. What every machine has
# stays outside: the C and C++ libraries, the loader, the device driver.
#
# Included twice: by the project before the dependencies are looked for, and as a script (cmake -P)
# that does the copying after a build, with FRT_BUILD set to the build folder.
if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB programs ${FRT_BUILD}/bin/*)
  file(GLOB plugins ${FRT_BUILD}/lib/frt/plugins/*.so)
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} MODULES ${plugins}
    RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
    POST_EXCLUDE_REGEXES "/(ld-linux|libc|libm|libdl|librt|libpthread|libstdc\\+\\+|libgcc_s)[-.]"
                         "^${FRT_BUILD}/lib/" "/libcuda\\.so")
  if(missing)
    message(FATAL_ERROR "not found: ${missing}")
  endif()
  foreach(library ${found})
    get_filename_component(name ${library} NAME)
    file(COPY_FILE ${library} ${FRT_BUILD}/lib/${name}.new)
    file(RENAME ${FRT_BUILD}/lib/${name}.new ${FRT_BUILD}/lib/${name})
  endforeach()
  return()
endif()

set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
set(OPENSSL_USE_STATIC_LIBS ON)
# The old kind of search path also serves the libraries that our libraries need.
add_link_options(-Wl,--disable-new-dtags)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
set(FRT_PLUGIN_RPATH "$ORIGIN;$ORIGIN/../..")

# frt_programs_below(<variable> <folder>): the programs that `all` builds into bin/, of the folder and those in it.
function(frt_programs_below variable folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  set(found)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(output ${target} RUNTIME_OUTPUT_DIRECTORY)
    get_target_property(excluded ${target} EXCLUDE_FROM_ALL)
    if(type STREQUAL "EXECUTABLE" AND output STREQUAL "${PROJECT_BINARY_DIR}/bin" AND NOT excluded)
      list(APPEND found ${target})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    frt_programs_below(more ${inner})
    list(APPEND found ${more})
  endforeach()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# Call at the end: copies after everything is built.
function(frt_bundle_libraries)
  get_property(plugins GLOBAL PROPERTY FRT_PLUGIN_TARGETS)
  frt_programs_below(programs ${PROJECT_SOURCE_DIR})
  add_custom_target(frt_bundle ALL
    COMMAND ${CMAKE_COMMAND} -DFRT_BUILD=${PROJECT_BINARY_DIR}
      -P ${PROJECT_SOURCE_DIR}/cmake/FrtPortable.cmake
    VERBATIM)
  add_dependencies(frt_bundle ${programs} ${plugins})
endfunction()
