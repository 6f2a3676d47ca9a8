// SPDX-License-Identifier: Apache-2.0
#include "util/file.hpp"

#include <frt/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace frt::core {

namespace {

Error system_error(int code, std::string_view doing, const std::filesystem::path& path) {
  return Error(code == ENOENT || code == ENOTDIR ? FRT_ERR_NOT_FOUND : FRT_ERR_IO,
               "cannot " + std::string(doing) + " '" + path.string() + "': " + std::strerror(code));
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

Descriptor open_file(const std::filesystem::path& path, std::string_view what) {
  // O_NONBLOCK: opening a pipe by mistake must not hang; regular files ignore it.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw system_error(errno, "open the " + std::string(what), path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    throw system_error(errno, "examine the " + std::string(what), path);
  }
  if (!S_ISREG(info.st_mode)) {
    throw Error(FRT_ERR_IO, "the " + std::string(what) + " '" + path.string() + "' is " +
                                (S_ISDIR(info.st_mode) ? "a folder" : "no regular file") +
                                "; name a file");
  }
  return file;
}

std::string read_small_file(const std::filesystem::path& path, std::string_view what,
                            uint64_t limit) {
  const Descriptor file = open_file(path, what);
  std::string content;
  char block[16384];
  for (;;) {
    const ssize_t got = ::read(file.get(), block, sizeof(block));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw system_error(errno, "read the " + std::string(what), path);
    }
    if (got == 0) return content;
    content.append(block, static_cast<std::size_t>(got));
    if (content.size() > limit) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "the " + std::string(what) + " '" + path.string() +
                                            "' is larger than " + std::to_string(limit) +
                                            " bytes; is it the right file?");
    }
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::string temporary = path.string() + ".XXXXXX";
  Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) throw system_error(errno, "create a file beside", path);
  const auto fail = [&](std::string_view doing) {
    const Error error = system_error(errno, doing, path);
    ::unlink(temporary.c_str());
    return error;
  };
  while (!content.empty()) {
    const ssize_t put = ::write(file.get(), content.data(), content.size());
    if (put < 0) {
      if (errno == EINTR) continue;
      throw fail("write");
    }
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  if (::fchmod(file.get(), 0644) != 0 || ::fsync(file.get()) != 0) throw fail("write");
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw fail("replace");
}

}  // namespace frt::core
