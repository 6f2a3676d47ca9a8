// SPDX-License-Identifier: Apache-2.0
#include <frt/io/user_cache.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace frt::io {

namespace fs = std::filesystem;

fs::path user_cache_folder(std::string_view name) {
  const char* base = ::secure_getenv("XDG_CACHE_HOME");
  if (base && *base == '/') return fs::path(base) / "frt" / name;
  const char* home = ::secure_getenv("HOME");
  if (home && *home == '/') return fs::path(home) / ".cache" / "frt" / name;
  return {};
}

bool prepare_private_folder(const fs::path& folder) noexcept {
  try {
    std::error_code none;
    if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), none);
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace frt::io
