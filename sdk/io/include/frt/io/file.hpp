// SPDX-License-Identifier: Apache-2.0
// frt/io/file.hpp - files whose path or content comes from outside. Only regular files are opened:
// a pipe, a socket, a device or a folder in their place is an error at once and never a wait.
//
// `what` names the purpose of a file in errors ("manifest"). Errors: FRT_ERR_NOT_FOUND if it does
// not exist, FRT_ERR_IO for the rest, with the path and the reason.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace frt::io {

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

// Whether the last part of a path may be a symbolic link. Files that a user names may be links;
// files that we made ourselves never are, so a link in their place is somebody else's work.
enum class Links { kFollow, kRefuse };

// True if something stands there, be it a link that leads nowhere: what may be absent is absent
// only if nothing does.  [any]
bool is_there(const std::filesystem::path& path) noexcept;

// Opens a regular file for reading.  [any]
Descriptor open_file(const std::filesystem::path& path, std::string_view what,
                     Links links = Links::kFollow);

// Opens a folder, for openat() and for fsync().  [any]
Descriptor open_folder(const std::filesystem::path& path, std::string_view what);

// Makes a file, or empties the regular file that is there, for writing in place. For what is
// written once and may be left half (a recording); everything else is written atomically.  [any]
Descriptor create_file(const std::filesystem::path& path, std::string_view what);

// Makes an empty file for its owner alone. FRT_ERR_EXISTS if a file has the name.  [any]
Descriptor new_file(const std::filesystem::path& path, std::string_view what);

// The whole content. FRT_ERR_OUT_OF_RANGE beyond `limit` bytes.  [any]
std::string read_file(const std::filesystem::path& path, std::string_view what, uint64_t limit,
                      Links links = Links::kFollow);
// The same, and nothing at all where it cannot be read: for what only saves time or informs.  [any]
std::string read_optional_file(const std::filesystem::path& path, uint64_t limit,
                               Links links = Links::kFollow) noexcept;

// Everything up to the end of something open, which may be a pipe (standard input). `name` is for
// errors ("the prompt"). FRT_ERR_OUT_OF_RANGE beyond `limit` bytes.  [any]
std::string read_to_end(int descriptor, const std::string& name, uint64_t limit);

// Renames a file within a folder (or, by whole paths, AT_FDCWD); a file of the new name stays. -1
// and errno, as rename(2): EEXIST.  [any]
int rename_new(int folder, const char* from, const char* to) noexcept;

// Makes what was created, renamed or removed in a folder survive a power cut.  [any]
void sync_folder(const std::filesystem::path& folder);

// Who may read a new file: whom the umask allows, or its owner alone.
enum class Rights { kUmask, kOwner };

// Writes a temporary file beside `path`, flushes it to the disk, and renames it: a reader sees the
// old content or the new, also after a power cut. A replaced file keeps its rights, and nobody else
// reads it meanwhile. Replaces a regular file, or a link to one or to nothing; refuses anything
// else, such as /dev/stdout.  [any]
void write_file_atomically(const std::filesystem::path& path, std::string_view content,
                           Rights rights = Rights::kUmask);

// Throws what write_file_atomically would, and changes nothing: for results that take long.  [any]
void check_output(const std::filesystem::path& path);

}  // namespace frt::io
