// SPDX-License-Identifier: Apache-2.0
// Everything is done relative to an opened folder, with names that hold no slash, and without
// following links: no name reaches outside.
//
// Sweeping. A writer holds a lock (flock) on its temporary file until it is renamed or the process
// ends, however that happens. So a temporary file whose lock can be had belongs to nobody. Process
// ids would not do: they are used again, and differ between containers that share a folder.
#include "capsule/folder.hpp"

#include <frt/error.hpp>
#include <frt/io/retry.hpp>
#include <frt/io/utf8.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "capsule/capsule.hpp"

namespace frt::core {

namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

Error folder_error(int code, const std::string& doing, const std::string& folder) {
  std::string text = "cannot " + doing + " the folder '" + folder + "': " + std::strerror(code);
  if (code == EACCES || code == EPERM || code == EROFS) {
    text += "; choose a folder that this user may write to";
  }
  return Error(code == ENOENT || code == ENOTDIR ? FRT_ERR_NOT_FOUND : FRT_ERR_IO, text);
}

// Calls visit(name) for every entry.
template <class Visit>
void for_each_entry(const std::string& folder, Visit&& visit) {
  io::Descriptor open = open_folder(folder);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(open.get()), ::closedir);
  if (!entries) throw folder_error(errno, "list", folder);
  const int descriptor = open.release();  // closed with `entries`
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(entries.get());
    if (!entry) break;
    visit(descriptor, std::string(entry->d_name));
  }
  if (errno != 0) throw folder_error(errno, "list", folder);
}

bool is_regular(int folder, const std::string& name) {
  struct stat info {};
  return ::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
}

// True if nobody writes to it any more and it is gone now.
bool sweep_file(int folder, const std::string& name) {
  const io::Descriptor file(
      ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return ::unlinkat(folder, name.c_str(), 0) == 0;
}

}  // namespace

bool is_capsule_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 128 || !is_plain(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_plain(c) || c == '_' || c == '.' || c == '-'; });
}

CapsulePath::CapsulePath(const char* folder, const char* name) {
  if (!folder || !*folder) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "no folder for capsule files; name one");
  }
  if (!name || !is_capsule_name(name)) {
    throw Error(
        FRT_ERR_INVALID_ARGUMENT,
        io::quote(name ? name : "") + " is no name of a capsule; names are " FRT_CAPSULE_NAME_RULE);
  }
  folder_ = folder;
  file_ = name + std::string(kCapsuleSuffix);
}

std::string CapsulePath::text() const {
  return "'" + folder_ + "/" + file_ + "'";
}

io::Descriptor open_folder(const std::string& folder) {
  io::Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open.get() < 0) throw folder_error(errno, "open", folder);
  return open;
}

io::Descriptor open_folder_for_writing(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw folder_error(errno, "make", folder);
  }
  io::Descriptor open = open_folder(folder);
  struct stat info {};
  if (::fstat(open.get(), &info) != 0) throw folder_error(errno, "examine", folder);
  // In a folder with the sticky bit others cannot touch our files.
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (info.st_mode & S_ISVTX) == 0) {
    throw Error(FRT_ERR_IO, "other users may write to the folder '" + folder +
                                "', but capsules hold what people have typed; make it private "
                                "(chmod 700), or choose another");
  }
  return open;
}

io::Descriptor open_capsule_file(const CapsulePath& path) {
  const io::Descriptor folder = open_folder(path.folder());
  // O_NONBLOCK: opening a pipe must not hang.
  io::Descriptor file(
      ::openat(folder.get(), path.file().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    throw Error(errno == ENOENT ? FRT_ERR_NOT_FOUND : FRT_ERR_IO,
                "cannot open the capsule " + path.text() + ": " +
                    (errno == ELOOP ? "it is a link" : std::strerror(errno)));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    throw Error(FRT_ERR_IO, "the capsule " + path.text() + " is no regular file");
  }
  return file;
}

namespace capsules {

frt_status list(const char* folder, frt_sink sink, void* user, frt_error* error) noexcept {
  if (!folder || !sink) {
    return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsules list: a null argument");
  }
  return guard(error, [&] {
    std::vector<std::string> names;
    try {
      for_each_entry(folder, [&](int open, const std::string& entry) {
        if (!entry.ends_with(kCapsuleSuffix)) return;
        const std::string name = entry.substr(0, entry.size() - kCapsuleSuffix.size());
        if (is_capsule_name(name) && is_regular(open, entry)) names.push_back(name);
      });
    } catch (const Error& problem) {
      if (problem.status() != FRT_ERR_NOT_FOUND) throw;
    }
    for (const std::string& name : names) {
      check(sink(user, name.data(), name.size()), "the receiver of capsule names");
    }
  });
}

frt_status remove(const char* folder, const char* name, frt_error* error) noexcept {
  return guard(error, [&] {
    const CapsulePath path(folder, name);
    const io::Descriptor open = open_folder(path.folder());
    if (::unlinkat(open.get(), path.file().c_str(), 0) != 0) {
      throw Error(errno == ENOENT ? FRT_ERR_NOT_FOUND : FRT_ERR_IO,
                  "cannot remove the capsule " + path.text() + ": " + std::strerror(errno));
    }
    if (io::retried([&] { return ::fsync(open.get()); }) != 0) {
      throw folder_error(errno, "flush", path.folder());
    }
  });
}

frt_status sweep(const char* folder, uint64_t* removed, frt_error* error) noexcept {
  if (!folder) return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsules sweep: no folder");
  return guard(error, [&] {
    uint64_t count = 0;
    try {
      for_each_entry(folder, [&](int open, const std::string& entry) {
        if (entry.starts_with(kTemporaryPrefix) && sweep_file(open, entry)) ++count;
      });
    } catch (const Error& problem) {
      if (problem.status() != FRT_ERR_NOT_FOUND) throw;
    }
    if (removed) *removed = count;
  });
}

}  // namespace capsules
}  // namespace frt::core
