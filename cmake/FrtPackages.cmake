# Packages: `cpack -G TGZ` and `cpack -G DEB` in the build folder make one of each component.
#
#   runtime   frt-host, libfrt.so, the plugins that were built, the demo model and its manifest
#   sdk       headers, the CMake package and frt.pc, templates, documents
set(demo ${PROJECT_SOURCE_DIR}/tests/fixtures/demo)
install(DIRECTORY ${demo} DESTINATION share/frt/models COMPONENT runtime
  PATTERN goldens.safetensors EXCLUDE PATTERN README.md EXCLUDE)
file(READ ${PROJECT_SOURCE_DIR}/hosts/manifests/demo.toml manifest)
string(REPLACE "../../tests/fixtures/demo" "../models/demo" manifest "${manifest}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/installed/demo.toml CONTENT "${manifest}" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/installed/demo.toml DESTINATION share/frt/manifests
  COMPONENT runtime)
foreach(component runtime sdk)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/frt-${component}
    COMPONENT ${component})
endforeach()

set(CPACK_PACKAGE_NAME frt)
set(CPACK_PACKAGE_VENDOR "FRT")
set(CPACK_PACKAGE_CONTACT "the FRT project")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "A plugin-based inference runtime")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_ALL runtime sdk)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME frt-runtime)
set(CPACK_DEBIAN_SDK_PACKAGE_NAME frt-sdk)
set(CPACK_DEBIAN_SDK_PACKAGE_RECOMMENDS frt-runtime)
include(CPack)
