# Plugins, the manifest, and their helpers. Paths are relative to core/.
set(FRT_CORE_PLUGIN_SOURCES
  include/frt/core/config.hpp
  include/frt/core/diagnostic.hpp
  include/frt/core/digest.hpp
  include/frt/core/log.hpp
  include/frt/core/manifest.hpp
  include/frt/core/plugin.hpp
  include/frt/core/registry.hpp
  include/frt/core/runtime.hpp
  include/frt/core/services.hpp
  src/util/config.cpp
  src/util/diagnostic.cpp
  src/util/digest.cpp
  src/util/file.cpp
  src/util/fingerprint.cpp
  src/util/log.cpp
  src/util/toml_reader.cpp
)
set(FRT_CORE_PLUGIN_PUBLIC_LIBRARIES)
set(FRT_CORE_PLUGIN_LIBRARIES
  OpenSSL::Crypto nlohmann_json::nlohmann_json spdlog::spdlog fmt::fmt Boost::headers
  ${CMAKE_DL_LIBS})
