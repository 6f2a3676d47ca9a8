# Packages: `cpack -G TGZ` and `cpack -G DEB` in the build folder make one of each component. The target `packaged`
# builds what is in them.
#
#   runtime   frt-host, libfrt.so, the plugins that were built, two demo models, manifests, manuals
#   sdk       headers, the CMake package and frt.pc, frt-plugin-check, templates, documents
#   python    the Python package over libfrt.so, where Debian's Python looks
get_property(plugins GLOBAL PROPERTY FRT_PLUGIN_TARGETS)
add_custom_target(packaged DEPENDS frt-host frt_embed make-checkpoint ${plugins})
if(TARGET frt-plugin-check)
  add_dependencies(packaged frt-plugin-check)
endif()
foreach(name demo reach)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/fixtures/${name} DESTINATION share/frt/models
    COMPONENT runtime
    PATTERN goldens.safetensors EXCLUDE PATTERN README.md EXCLUDE PATTERN report.json EXCLUDE)
endforeach()
foreach(name demo handoff reach serve-demo synthetic)
  set(source ${PROJECT_SOURCE_DIR}/hosts/manifests/${name}.toml)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} manifest)
  string(REPLACE "../../tests/fixtures/" "../models/" manifest "${manifest}")
  string(REPLACE "hosts/manifests/" "share/frt/manifests/" manifest "${manifest}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/installed/${name}.toml CONTENT "${manifest}" @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/installed/${name}.toml DESTINATION share/frt/manifests
    COMPONENT runtime)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/python/frt DESTINATION lib/python3/dist-packages
  COMPONENT python PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/sdk/python/README.md
  DESTINATION share/doc/python3-frt COMPONENT python)
foreach(component runtime sdk)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/frt-${component}
    COMPONENT ${component})
  install(FILES ${PROJECT_SOURCE_DIR}/sdk/INSTALLED.md RENAME README.md
    DESTINATION share/doc/frt-${component} COMPONENT ${component})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/hosts/MANIFEST.md DESTINATION share/doc/frt-runtime
  COMPONENT runtime)
foreach(page http/ROUTES.md http/SECURITY.md http/api/openapi.json robot/PROTOCOL.md)
  cmake_path(GET page PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/hosts/${page} DESTINATION share/doc/frt-runtime/${folder}
    COMPONENT runtime)
endforeach()

set(CPACK_PACKAGE_NAME frt)
set(CPACK_PACKAGE_VENDOR "FRT")
set(CPACK_PACKAGE_CONTACT "the FRT project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "A plugin-based inference runtime")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_ALL runtime sdk python)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME frt-runtime)
set(CPACK_DEBIAN_SDK_PACKAGE_NAME frt-sdk)
set(CPACK_DEBIAN_SDK_PACKAGE_SHLIBDEPS ON)  # of frt-plugin-check
set(CPACK_DEBIAN_SDK_PACKAGE_RECOMMENDS frt-runtime)
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-frt)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.11), frt-runtime (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS python3-numpy)
include(CPack)
