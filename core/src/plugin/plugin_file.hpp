// SPDX-License-Identifier: Apache-2.0
// plugin_file.hpp - mapping a plugin file, shared by the loader and the trial in a child process.
#pragma once

#include <frt/plugin.h>
#include <frt/io/file.hpp>

#include <filesystem>

namespace frt::core {

// Maps the library for the rest of the process's life and returns its descriptor, unchecked.
// `file` is kept open as long, if it is open. Throws FRT_ERR_FORMAT.  [setup]
const frt_plugin_desc* map_plugin(const std::filesystem::path& path, io::Descriptor file);

}  // namespace frt::core
