// SPDX-License-Identifier: Apache-2.0
// plugin_file.hpp - mapping a plugin file and its first call, shared by the loader and the trial in
// a child process.
#pragma once

#include <frt/plugin.h>
#include <frt/core/config.hpp>
#include <frt/io/file.hpp>

#include <filesystem>
#include <string>

namespace frt::core {

// Maps the library for the rest of the process's life and returns its descriptor, unchecked.
// `file` is kept open as long, if it is open. Throws FRT_ERR_FORMAT.  [setup]
const frt_plugin_desc* map_plugin(const std::filesystem::path& path, io::Descriptor file);

// Asks a plugin for its option schema: its first call. Empty if it has none. Throws
// FRT_ERR_INTERNAL if the plugin throws, and as read_schema().  [setup]
ConfigSchema ask_schema(const frt_plugin_desc& descriptor, const std::string& id);

}  // namespace frt::core
