// SPDX-License-Identifier: Apache-2.0
// A path is examined before it is opened, because opening alone can have effects (a tape rewinds, a
// watchdog starts), and again afterwards, because the path may have changed between the two.
// O_NONBLOCK keeps that gap from becoming a wait: a pipe opens at once and is refused. It stays
// set, so that the odd "regular" file of /proc that would wait for data is an error, too.
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/retry.hpp>
#include <frt/io/write_advice.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

namespace frt::io {

namespace {

Error system_error(int code, std::string_view doing, const std::filesystem::path& path,
                   std::string_view advice = {}) {
  const bool missing = code == ENOENT || code == ENOTDIR;
  return Error(missing          ? FRT_ERR_NOT_FOUND
               : code == EEXIST ? FRT_ERR_EXISTS
                                : FRT_ERR_IO,
               "cannot " + std::string(doing) + " '" + path.string() + "': " + std::strerror(code) +
                   std::string(advice));
}

Error write_error(int code, std::string_view doing, const std::filesystem::path& path) {
  return system_error(code, doing, path, write_advice(code));
}

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void require_regular(mode_t mode, const std::filesystem::path& path, std::string_view what) {
  if (S_ISREG(mode)) return;
  throw Error(FRT_ERR_IO, "the " + std::string(what) + " '" + path.string() + "' is " +
                              kind_name(mode) + ", not a regular file; name a file");
}

Descriptor open_regular(const std::filesystem::path& path, std::string_view what, int flags,
                        mode_t rights = 0666) {
  const auto failed = [&](int code) {
    const std::string doing = "open the " + std::string(what);
    return flags & O_CREAT ? write_error(code, doing, path) : system_error(code, doing, path);
  };
  struct stat info {};
  const bool there =
      (flags & O_NOFOLLOW ? ::lstat(path.c_str(), &info) : ::stat(path.c_str(), &info)) == 0;
  if (there) {
    require_regular(info.st_mode, path, what);
  } else if (errno != ENOENT || (flags & O_CREAT) == 0) {
    throw failed(errno);
  }
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, rights));
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) throw failed(errno);
  require_regular(info.st_mode, path, what);
  return file;
}

// True for a link that goes through /proc, as /dev/stdout does: it leads to something that is open,
// and a new file in its place would not be that.
bool leads_to_open(std::filesystem::path link) {
  constexpr int kMostLinks = 40;  // as the system follows
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(link, error);
    if (error) return false;
    link = (link.parent_path() / target).lexically_normal();
    if (link.string().starts_with("/proc/")) return true;
  }
  return false;
}

// The rights of the file that a new one replaces; nothing if none is there. Throws if something
// else is.
std::optional<mode_t> replaced_rights(const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return std::nullopt;  // what is wrong, creating will say
  if (S_ISLNK(info.st_mode)) {
    if (leads_to_open(path)) {
      throw Error(FRT_ERR_IO, "the output '" + path.string() +
                                  "' is a link to something that is open; name a file");
    }
    if (::stat(path.c_str(), &info) != 0) {
      if (errno == ENOENT) return std::nullopt;  // it leads nowhere
      throw write_error(errno, "replace", path);
    }
  }
  require_regular(info.st_mode, path, "output");
  return info.st_mode & 0777;
}

// A new file beside `path` under a name of its own.
Descriptor create_beside(const std::filesystem::path& path, mode_t rights, std::string* name) {
  std::random_device random;
  for (int attempt = 0;; ++attempt) {
    char suffix[16];
    std::snprintf(suffix, sizeof(suffix), ".%08x", random());
    *name = path.string() + suffix;
    Descriptor file(::open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, rights));
    if (file.get() >= 0) return file;
    if (errno != EEXIST || attempt == 100) throw write_error(errno, "create a file beside", path);
  }
}

}  // namespace

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

int Descriptor::release() noexcept {
  const int value = value_;
  value_ = -1;
  return value;
}

bool is_there(const std::filesystem::path& path) noexcept {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

Descriptor open_file(const std::filesystem::path& path, std::string_view what, Links links) {
  return open_regular(path, what, O_RDONLY | (links == Links::kRefuse ? O_NOFOLLOW : 0));
}

Descriptor open_folder(const std::filesystem::path& path, std::string_view what) {
  Descriptor folder(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) throw system_error(errno, "open the " + std::string(what), path);
  return folder;
}

Descriptor create_file(const std::filesystem::path& path, std::string_view what) {
  Descriptor file = open_regular(path, what, O_WRONLY | O_CREAT);
  if (retried([&] { return ::ftruncate(file.get(), 0); }) != 0) {
    throw write_error(errno, "empty the " + std::string(what), path);
  }
  return file;
}

Descriptor new_file(const std::filesystem::path& path, std::string_view what) {
  return open_regular(path, what, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
}

std::string read_file(const std::filesystem::path& path, std::string_view what, uint64_t limit,
                      Links links) {
  const Descriptor file = open_file(path, what, links);
  return read_to_end(file.get(), "the " + std::string(what) + " '" + path.string() + "'", limit);
}

std::string read_to_end(int descriptor, const std::string& name, uint64_t limit) {
  const auto failed = [&] {
    return Error(FRT_ERR_IO, "cannot read " + name + ": " + std::strerror(errno));
  };
  const auto too_large = [&] {
    return Error(FRT_ERR_OUT_OF_RANGE, name + " is larger than " + std::to_string(limit) +
                                           " bytes; is it the right file?");
  };
  // The size is a hint only: files grow, and those of /proc and pipes say 0.
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) throw failed();
  if (static_cast<uint64_t>(info.st_size) > limit) throw too_large();
  std::string content(static_cast<std::size_t>(info.st_size) + 1, '\0');
  for (std::size_t used = 0;;) {
    const ssize_t got =
        retried([&] { return ::read(descriptor, content.data() + used, content.size() - used); });
    if (got < 0) throw failed();
    used += static_cast<std::size_t>(got);
    if (used > limit) throw too_large();
    if (got == 0) {
      content.resize(used);
      return content;
    }
    constexpr std::size_t kBlock = 16384;
    if (used == content.size()) content.resize(std::max(2 * used, kBlock));
  }
}

std::string read_optional_file(const std::filesystem::path& path, uint64_t limit,
                               Links links) noexcept {
  try {
    return read_file(path, "file", limit, links);
  } catch (const std::exception&) {
    return {};
  }
}

int rename_new(int folder, const char* from, const char* to) noexcept {
  if (::renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  // A file system without that flag: a second name fails if it is taken, too.
  if (::linkat(folder, from, folder, to, 0) != 0) return -1;
  ::unlinkat(folder, from, 0);
  return 0;
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor open = open_folder(folder, "folder");
  if (retried([&] { return ::fsync(open.get()); }) != 0) {
    throw write_error(errno, "flush the folder", folder);
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content,
                           Rights rights) {
  const std::optional<mode_t> replaced = replaced_rights(path);
  const bool owner_only = replaced || rights == Rights::kOwner;
  std::string temporary;
  const Descriptor file = create_beside(path, owner_only ? 0600 : 0666, &temporary);
  const auto fail = [&](std::string_view doing) {
    const Error error = write_error(errno, doing, path);
    ::unlink(temporary.c_str());
    return error;
  };
  while (!content.empty()) {
    const ssize_t put =
        retried([&] { return ::write(file.get(), content.data(), content.size()); });
    if (put < 0) throw fail("write");
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  if (replaced && ::fchmod(file.get(), *replaced) != 0) throw fail("write");
  if (retried([&] { return ::fsync(file.get()); }) != 0) throw fail("write");
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw fail("replace");
  sync_folder(path.parent_path());
}

std::string_view write_advice(int code) noexcept {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "; remove files there, or choose a place with more room";
    case EFBIG:
      return "; files may not be that large here (ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; choose a folder that this user may write to";
    case ENOENT:
    case ENOTDIR:
      return "; make its folder first, or choose one that is there";
    default:
      return {};
  }
}

void check_output(const std::filesystem::path& path) {
  replaced_rights(path);
  std::string temporary;
  create_beside(path, 0600, &temporary);
  ::unlink(temporary.c_str());
}

}  // namespace frt::io
