// SPDX-License-Identifier: Apache-2.0
// SHA-256 through OpenSSL, and the memo of file digests.
//
// The saved memo is one line per file, "device inode size mtime digest", all decimal but the
// digest; unreadable lines are skipped, since losing one costs only time.
#include <frt/core/digest.hpp>
#include <frt/error.hpp>
#include <frt/io/file.hpp>

#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>

namespace frt::core {

namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;
constexpr uint64_t kMemoLimit = uint64_t{16} << 20;
constexpr std::string_view kMemoHeader = "frt-digests/1";

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (!state_->context || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    throw Error(FRT_ERR_INTERNAL, "SHA-256 is not available in this OpenSSL");
  }
}

Sha256::~Sha256() = default;

void Sha256::update(const void* data, std::size_t bytes) {
  if (EVP_DigestUpdate(state_->context, data, bytes) != 1) {
    throw Error(FRT_ERR_INTERNAL, "SHA-256 failed in OpenSSL");
  }
}

std::array<unsigned char, 32> Sha256::finish_bytes() {
  std::array<unsigned char, 32> bytes;
  unsigned int count = 0;
  if (EVP_DigestFinal_ex(state_->context, bytes.data(), &count) != 1 || count != bytes.size()) {
    throw Error(FRT_ERR_INTERNAL, "SHA-256 failed in OpenSSL");
  }
  return bytes;
}

std::string Sha256::finish() {
  return hex_text(finish_bytes());
}

std::string hex_text(std::span<const unsigned char> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 sha;
  sha.update(bytes.data(), bytes.size());
  return sha.finish();
}

std::string sha256_file(int descriptor, const std::string& name) {
  Sha256 sha;
  const auto block = std::make_unique<unsigned char[]>(kBlock);
  for (off_t offset = 0;;) {
    const ssize_t got = ::pread(descriptor, block.get(), kBlock, offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw Error(FRT_ERR_IO, "cannot read '" + name + "': " + std::strerror(errno));
    }
    if (got == 0) return sha.finish();
    sha.update(block.get(), static_cast<std::size_t>(got));
    offset += got;
  }
}

std::string DigestMemo::file(const std::filesystem::path& path) {
  const io::Descriptor open = io::open_file(path, "file");
  return file(open.get(), path.string());
}

std::string DigestMemo::file(int descriptor, const std::string& name) {
  struct stat before {};
  if (::fstat(descriptor, &before) != 0) {
    throw Error(FRT_ERR_IO, "cannot examine '" + name + "': " + std::strerror(errno));
  }
  const auto nanoseconds = [](const struct stat& info) {
    return static_cast<int64_t>(info.st_mtim.tv_sec) * 1000000000 + info.st_mtim.tv_nsec;
  };
  const Key key(before.st_dev, before.st_ino, static_cast<uint64_t>(before.st_size),
                nanoseconds(before));
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  std::string digest = sha256_file(descriptor, name);
  struct stat after {};
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const bool settled = ::fstat(descriptor, &after) == 0 &&
                       nanoseconds(after) == nanoseconds(before) &&
                       after.st_size == before.st_size && now - nanoseconds(before) > 2000000000;
  if (settled) {
    const std::lock_guard lock(mutex_);
    known_.emplace(key, digest);
  }
  return digest;
}

void DigestMemo::load(const std::filesystem::path& path) {
  std::istringstream stream(io::read_optional_file(path, kMemoLimit, io::Links::kRefuse));
  std::string line;
  if (!std::getline(stream, line) || line != kMemoHeader) return;
  const std::lock_guard lock(mutex_);
  while (std::getline(stream, line)) {
    std::istringstream fields(line);
    uint64_t device = 0, inode = 0, bytes = 0;
    int64_t time = 0;
    std::string digest;
    if (fields >> device >> inode >> bytes >> time >> digest && is_digest(digest)) {
      known_.emplace(Key(device, inode, bytes, time), digest);
    }
  }
}

void DigestMemo::save(const std::filesystem::path& path) const {
  std::ostringstream text;
  text << kMemoHeader << "\n";
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, digest] : known_) {
      text << std::get<0>(key) << ' ' << std::get<1>(key) << ' ' << std::get<2>(key) << ' '
           << std::get<3>(key) << ' ' << digest << "\n";
    }
  }
  io::write_file_atomically(path, text.str());
}

std::size_t DigestMemo::size() const {
  const std::lock_guard lock(mutex_);
  return known_.size();
}

}  // namespace frt::core
