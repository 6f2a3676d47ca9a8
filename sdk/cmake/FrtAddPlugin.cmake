# frt_add_plugin(<target> OUTPUT <file name without .so> SOURCES <files...> [LINK <targets...>]
#                [NO_INSTALL])
#
# Builds one plugin: a MODULE named <OUTPUT>.so, hidden visibility, exactly one exported symbol
# (version script), no undefined symbols, loadable from any folder ($ORIGIN). In the project's own
# tree it lands in FRT_PLUGIN_OUTPUT_DIRECTORY; `cmake --install` puts it into lib/frt/plugins, unless
# NO_INSTALL is given.
#
# The search path is the installed one from the start: a build path is padded with an empty entry,
# which the dynamic linker takes for the working directory.
function(frt_add_plugin target)
  set(version_script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  cmake_parse_arguments(arg "NO_INSTALL" "OUTPUT" "SOURCES;LINK" ${ARGN})
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
endfunction()
