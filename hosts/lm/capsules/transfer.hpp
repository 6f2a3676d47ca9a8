// SPDX-License-Identifier: Apache-2.0
// transfer.hpp - capsule files into and out of a folder. What comes in is checked first and
// appears at once and whole, or not at all; nothing is ever replaced.
#pragma once

#include <frt/capsule.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lm/capsules/content.hpp"

namespace frt::host {

// Copies a capsule's file, once it was verified (file.hpp), to `file`, with mode 0600.
// `trust`: also one that others can write (trust.hpp). FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT,
// FRT_ERR_EXISTS, FRT_ERR_BAD_STATE (others can write), FRT_ERR_IO.  [any]
void export_capsule(const frt_capsules_v1& capsules, const std::filesystem::path& folder,
                    const std::string& name, const std::filesystem::path& file, bool trust = false);

// Takes a file into `folder`, which is made if it is missing, as `name`; empty: its own, without
// ".capsule". Returns the name. `trust`: also into a folder, and of a file, that others can write
// (trust.hpp). FRT_ERR_NOT_FOUND, FRT_ERR_INVALID_ARGUMENT (the name), FRT_ERR_FORMAT
// (damaged, or put together), FRT_ERR_EXISTS, FRT_ERR_BAD_STATE (others can write), FRT_ERR_IO.
// [any]
std::string import_capsule(const frt_capsules_v1& capsules, const std::filesystem::path& folder,
                           const std::filesystem::path& file, const std::string& name,
                           bool trust = false);

// A capsule file that comes in parts, into a folder, which is made if it is missing; until keep()
// it is in a folder of its own beside the others, and goes with this object. One thread at a time.
class IncomingCapsule {
 public:
  // `trust`: also into a folder that others can write (trust.hpp). FRT_ERR_NOT_FOUND,
  // FRT_ERR_BAD_STATE, FRT_ERR_IO.
  IncomingCapsule(const std::filesystem::path& folder, bool trust);
  ~IncomingCapsule();
  IncomingCapsule(const IncomingCapsule&) = delete;
  IncomingCapsule& operator=(const IncomingCapsule&) = delete;

  // FRT_ERR_OUT_OF_MEMORY where the disk has no room, or a limit is reached; FRT_ERR_IO.
  void write(std::string_view bytes);
  // The last call: the file is on the disk, every byte is verified, `accept` sees the content and
  // throws what is against it, and only then it has its name. FRT_ERR_INVALID_ARGUMENT (the name),
  // FRT_ERR_FORMAT (damaged, or put together), FRT_ERR_EXISTS, FRT_ERR_OUT_OF_MEMORY, FRT_ERR_IO.
  void keep(const frt_capsules_v1& capsules, const std::string& name,
            const std::function<void(const CapsuleContent&)>& accept);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace frt::host
