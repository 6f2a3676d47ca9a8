// SPDX-License-Identifier: Apache-2.0
// The file of a digest is named by the SHA-256 of the absolute path it is about, and holds
//
//     frt-digest/1
//     <device> <inode> <size> <modified, ns> <changed, ns>
//     <64 hex digits>
//
// It is compared with the text that would be written now, up to the digest.
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/user_cache.hpp>
#include <frt/models/digest_memo.hpp>
#include <frt/models/sha256.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace frt::models {
namespace {

namespace fs = std::filesystem;

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

// What the digest depends on.
std::string key(const struct stat& info) {
  std::string text = "frt-digest/1\n";
  text += std::to_string(info.st_dev) + " " + std::to_string(info.st_ino) + " " +
          std::to_string(info.st_size) + " " + std::to_string(nanoseconds(info.st_mtim)) + " " +
          std::to_string(nanoseconds(info.st_ctim)) + "\n";
  return text;
}

bool is_digest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A memo that cannot be written costs time and nothing else.
void write(const fs::path& path, const std::string& text) {
  try {
    io::write_file_atomically(path, text);
  } catch (const Error&) {
  }
}

}  // namespace

DigestMemo DigestMemo::of_user() {
  DigestMemo memo;
  memo.folder = io::user_cache_folder("digests");
  return memo;
}

std::string DigestMemo::sha256(int descriptor, const fs::path& path) const {
  struct stat before {};
  if (::fstat(descriptor, &before) != 0) {
    throw Error(FRT_ERR_IO, path.string() + ": cannot be examined: " + std::strerror(errno));
  }
  if (folder.empty() || static_cast<std::uint64_t>(before.st_size) < smallest ||
      !io::prepare_private_folder(folder)) {
    return sha256_file(descriptor, path);
  }
  std::error_code none;
  const fs::path entry = folder / sha256_text(fs::absolute(path, none).string());
  const std::string expected = key(before);
  const std::string found = io::read_optional_file(entry, 4096, io::Links::kRefuse);
  if (found.size() == expected.size() + 65 && found.compare(0, expected.size(), expected) == 0 &&
      found.back() == '\n' && is_digest(found.substr(expected.size(), 64))) {
    return found.substr(expected.size(), 64);
  }
  std::string digest = sha256_file(descriptor, path);
  struct stat after {};
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  if (::fstat(descriptor, &after) == 0 && key(after) == expected &&
      now - nanoseconds(before.st_mtim) >= settled_ns &&
      now - nanoseconds(before.st_ctim) >= settled_ns) {
    write(entry, expected + digest + "\n");
  }
  return digest;
}

}  // namespace frt::models
