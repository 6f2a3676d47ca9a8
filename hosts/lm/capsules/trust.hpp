// SPDX-License-Identifier: Apache-2.0
// trust.hpp - whose capsules are used. A capsule becomes the state of a model: who can
// write one decides what the model answers, and the digests of a file find accidents, not forgers.
// So a capsule, and the folder it is in, must be writable by this user and root alone.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <frt/io/file.hpp>

namespace frt::host {

// The folder belongs to this user or to root, and others cannot write to it; or only with the
// sticky bit, so that they cannot touch files of ours. A folder that is missing will be made by us.
// Throws FRT_ERR_BAD_STATE with the fix.  [any]
void require_own_folder(const std::filesystem::path& folder);

// The open file belongs to this user or to root, and others cannot write to it. `file` is its name,
// for errors. A file of a folder of capsules is opened without following a link: then the name
// means this file as long as nobody of the trusted renames it, for others cannot, not even where
// the sticky bit alone keeps them from it. Throws FRT_ERR_BAD_STATE with the fix.  [any]
void require_own_file(const io::Descriptor& open, const std::filesystem::path& file);
bool is_own_file(const struct stat& facts) noexcept;

}  // namespace frt::host
