// SPDX-License-Identifier: Apache-2.0
// frt/io/user_cache.hpp - where a user's programs keep what they could compute again.
//
// What is kept there saves time and is never needed: whoever reads it checks it, and where the
// folder cannot be had or is not to be trusted, nothing is kept.
#pragma once

#include <filesystem>
#include <string_view>

namespace frt::io {

// $XDG_CACHE_HOME/frt/<name>, else $HOME/.cache/frt/<name>. Empty without either, and in a process
// with raised privileges, whose environment is somebody else's.  [any]
std::filesystem::path user_cache_folder(std::string_view name);

// Makes the folder, for its owner alone, with its parents. False if it cannot be had or is not to
// be trusted: it is a link, belongs to somebody else, or others may write to it.  [any]
bool prepare_private_folder(const std::filesystem::path& folder) noexcept;

}  // namespace frt::io
