// SPDX-License-Identifier: Apache-2.0
// checkpoint_folder.hpp - a folder with a checkpoint where a command wants a manifest: the manifest
// that it stands for. `frt-host config dump FOLDER` shows it, --set changes it.
#pragma once

#include <frt/core/manifest.hpp>
#include <frt/core/registry.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace frt::host {

// What the device and the model of such a manifest are called.
inline constexpr const char* kFolderName = "main";

bool is_checkpoint_folder(const std::filesystem::path& path);

// Where the manifest of `folder` would be: for messages, and where its relative paths begin.
std::filesystem::path folder_manifest_path(const std::filesystem::path& folder);

// The manifest: device "auto", the plugin whose card names the "model_type" of the checkpoint's
// config.json, all options as they are by themselves, and a server that answers to every model
// name. `sets` are the user's: one that says the plugin, "model.main.plugin=ID", is taken over.
// Throws, with exit status 3, if the folder has no config.json or none that says its model_type;
// with 4 if not exactly one plugin takes it.  [setup]
std::string folder_manifest(core::Registry& registry, const std::filesystem::path& folder,
                            const std::vector<std::string>& sets);

}  // namespace frt::host
