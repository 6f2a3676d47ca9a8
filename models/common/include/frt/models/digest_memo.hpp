// SPDX-License-Identifier: Apache-2.0
// frt/models/digest_memo.hpp - SHA-256 of large files, remembered between runs: a checkpoint takes
// a core half a second per gigabyte.
//
// The rule: a digest is remembered for a path together with device, inode, size, time of
// modification and time of change of the file; it is used only if all of them are as they were. A
// file that was changed within the last two seconds (`settled_ns`) is not remembered, for a further
// change might leave its times as they are. Files below `smallest` are always read.
//
// Each digest is a file of its own in `folder`, written under a temporary name and renamed. A
// folder that is not this user's, or that others may write to, is not used: whoever writes there
// could lie. Whatever is wrong with the folder costs time, never the answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace frt::models {

struct DigestMemo {
  std::filesystem::path folder;                      // empty: nothing is remembered
  std::uint64_t smallest = std::uint64_t{64} << 20;  // bytes
  std::int64_t settled_ns = 2000000000;              // since the last change

  // $XDG_CACHE_HOME/frt/digests, else $HOME/.cache/frt/digests.
  static DigestMemo of_user();

  // 64 hex digits of the open file `descriptor`, which was opened as `path`. FRT_ERR_IO.  [any]
  std::string sha256(int descriptor, const std::filesystem::path& path) const;
};

}  // namespace frt::models
