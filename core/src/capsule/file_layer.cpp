// SPDX-License-Identifier: Apache-2.0
#include "capsule/file_layer.hpp"

#include <frt/io/file.hpp>
#include <frt/io/retry.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace frt::core {

namespace {

// Keeps errno of what failed over the cleaning up.
int closed(int file, int error) {
  ::close(file);
  errno = error;
  return -1;
}

}  // namespace

int FileLayer::create(int folder, const char* name) {
  const int file = io::retried([&] {
    return ::openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  });
  if (file < 0) return -1;
  // The mode as it is, whatever the process masks out.
  if (::fchmod(file, 0600) != 0 || io::retried([&] { return ::flock(file, LOCK_EX); }) != 0) {
    const int error = errno;
    ::unlinkat(folder, name, 0);
    return closed(file, error);
  }
  // A sweep may have come between the two calls; what it removed is no file to write to.
  struct stat info {};
  if (::fstat(file, &info) != 0) return closed(file, errno);
  if (info.st_nlink == 0) return closed(file, EAGAIN);
  return file;
}

ssize_t FileLayer::write_at(int file, const void* data, std::size_t bytes, off_t offset) {
  return io::retried([&] { return ::pwrite(file, data, bytes, offset); });
}

int FileLayer::sync_data(int file) {
  return io::retried([&] { return ::fdatasync(file); });
}

int FileLayer::publish(int folder, const char* temporary, const char* name, bool replace) {
  if (replace) return ::renameat(folder, temporary, folder, name);
  return io::rename_new(folder, temporary, name);
}

int FileLayer::sync_folder(int folder) {
  return io::retried([&] { return ::fsync(folder); });
}

int FileLayer::remove(int folder, const char* name) {
  return ::unlinkat(folder, name, 0);
}

FileLayer& system_files() noexcept {
  static FileLayer layer;
  return layer;
}

}  // namespace frt::core
