// SPDX-License-Identifier: Apache-2.0
// file.hpp - small files: read as a whole with a limit, written so that a reader never sees half.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace frt::core {

// An open file descriptor, closed when destroyed.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) noexcept : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return value_; }
  int release() noexcept;

 private:
  int value_;
};

// Opens a regular file for reading. Throws FRT_ERR_NOT_FOUND if it does not exist, FRT_ERR_IO for
// other failures and for what is no regular file. `what` names its purpose ("manifest").  [any]
Descriptor open_file(const std::filesystem::path& path, std::string_view what);

// The whole content. FRT_ERR_OUT_OF_RANGE beyond `limit` bytes.  [any]
std::string read_small_file(const std::filesystem::path& path, std::string_view what,
                            uint64_t limit);

// Writes a temporary file beside `path`, flushes it to the disk, and renames it. FRT_ERR_IO. [any]
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace frt::core
