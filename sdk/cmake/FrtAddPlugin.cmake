# frt_add_plugin(<target> OUTPUT <file name without .so> SOURCES <files...> [LINK <targets...>]
#                [NO_INSTALL] [CHECK] [CHECK_CHECKPOINT <path>])
#
# Builds one plugin: a MODULE named <OUTPUT>.so, hidden visibility, exactly one exported symbol
# (version script), no undefined symbols, loadable from any folder ($ORIGIN). In the project's own
# tree it lands in FRT_PLUGIN_OUTPUT_DIRECTORY; `cmake --install` puts it into lib/frt/plugins, unless
# NO_INSTALL is given.
#
# CHECK adds the test <target>_check, which runs frt-plugin-check over the plugin: one case of each
# kind. CHECK_CHECKPOINT is what a model is made of, a file or a folder relative to the current
# source directory; it may be written after the build. Without it no model is made, and the cases
# that need one are skipped. CHECK_CHECKPOINT alone means CHECK, too. FRT_PLUGIN_CHECK is the
# program, FRT_REFERENCE_PLUGIN the CPU backend that it compares with; both are looked for beside the
# SDK. Without the program there is no test, and a message says so.
#
# The search path is the installed one from the start: a build path is padded with an empty entry,
# which the dynamic linker takes for the working directory.
function(frt_add_plugin target)
  set(version_script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  cmake_parse_arguments(arg "NO_INSTALL;CHECK" "OUTPUT;CHECK_CHECKPOINT" "SOURCES;LINK" ${ARGN})
  if(NOT arg_OUTPUT OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "frt_add_plugin(${target}): needs OUTPUT <name> and SOURCES <files...>; "
                        "not understood: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  set(rpath "$ORIGIN")
  if(FRT_PLUGIN_RPATH)
    set(rpath "${FRT_PLUGIN_RPATH}")
  endif()
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE frt::sdk ${arg_LINK})
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME ${arg_OUTPUT}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    INSTALL_RPATH "${rpath}" BUILD_WITH_INSTALL_RPATH ON
    LINK_DEPENDS ${version_script})
  if(FRT_PLUGIN_OUTPUT_DIRECTORY)
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${FRT_PLUGIN_OUTPUT_DIRECTORY})
  endif()
  target_link_options(${target} PRIVATE -Wl,--version-script=${version_script})
  if(NOT FRT_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  if(NOT arg_NO_INSTALL)
    set(component plugins)
    if(FRT_PLUGIN_COMPONENT)
      set(component ${FRT_PLUGIN_COMPONENT})
    endif()
    install(TARGETS ${target} LIBRARY DESTINATION lib/frt/plugins COMPONENT ${component})
    set_property(GLOBAL APPEND PROPERTY FRT_PLUGIN_TARGETS ${target})
  endif()
  if(arg_CHECK OR arg_CHECK_CHECKPOINT)
    frt_add_plugin_check(${target} "${arg_CHECK_CHECKPOINT}")
  endif()
endfunction()

# The test that CHECK asks for.
function(frt_add_plugin_check target checkpoint)
  set(prefix ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../..)
  find_program(FRT_PLUGIN_CHECK frt-plugin-check HINTS ${prefix}/bin)
  find_file(FRT_REFERENCE_PLUGIN frt_cpu.so HINTS ${prefix}/lib/frt/plugins NO_DEFAULT_PATH)
  if(NOT FRT_PLUGIN_CHECK OR NOT FRT_REFERENCE_PLUGIN)
    message(STATUS "${target}: no test ${target}_check, because frt-plugin-check or frt_cpu.so is not "
                   "installed beside the SDK; set FRT_PLUGIN_CHECK and FRT_REFERENCE_PLUGIN")
    return()
  endif()
  set(made_of "")
  if(checkpoint)
    cmake_path(ABSOLUTE_PATH checkpoint BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    set(made_of --checkpoint ${checkpoint})
  endif()
  add_test(NAME ${target}_check COMMAND ${FRT_PLUGIN_CHECK} $<TARGET_FILE:${target}>
    --reference ${FRT_REFERENCE_PLUGIN} --one-of-each ${made_of})
endfunction()
