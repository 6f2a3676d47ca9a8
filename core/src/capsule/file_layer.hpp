// SPDX-License-Identifier: Apache-2.0
// file_layer.hpp - the calls of the operating system that a save depends on, one by one, so that
// tests can make each of them fail, or the process die at it.
//
// Each returns what the system call returns, with errno, interrupted calls repeated.  [any]
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace frt::core {

class FileLayer {
 public:
  virtual ~FileLayer() = default;

  // A new file of mode 0600 that is locked by this process (flock).
  virtual int create(int folder, const char* name);
  virtual ssize_t write_at(int file, const void* data, std::size_t bytes, off_t offset);
  virtual int sync_data(int file);
  // Gives `temporary` its final name. Without `replace`: EEXIST if that is taken.
  virtual int publish(int folder, const char* temporary, const char* name, bool replace);
  virtual int sync_folder(int folder);
  virtual int remove(int folder, const char* name);
};

// The system's own.
FileLayer& system_files() noexcept;

}  // namespace frt::core
