// SPDX-License-Identifier: Apache-2.0
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/models/sha256.hpp>

#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace frt::models {
namespace {

class Sha256 {
 public:
  Sha256() { good_ = context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1; }
  void update(const void* data, std::size_t bytes) {
    good_ = good_ && EVP_DigestUpdate(context_.get(), data, bytes) == 1;
  }
  std::string finish(const std::string& what) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (!good_ || EVP_DigestFinal_ex(context_.get(), digest, &length) != 1) {
      throw Error(FRT_ERR_INTERNAL, "the SHA-256 of " + what + " cannot be computed");
    }
    constexpr char kHex[] = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < length; ++i) {
      text += kHex[digest[i] >> 4];
      text += kHex[digest[i] & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_{EVP_MD_CTX_new(), EVP_MD_CTX_free};
  bool good_ = false;
};

}  // namespace

std::string sha256_file(int descriptor, const std::filesystem::path& path) {
  Sha256 sha;
  std::vector<unsigned char> chunk(std::size_t{1} << 20);
  for (off_t at = 0;;) {
    const ssize_t got = ::pread(descriptor, chunk.data(), chunk.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw Error(FRT_ERR_IO, path.string() + ": cannot be read: " + std::strerror(errno));
    }
    if (got == 0) return sha.finish(path.string());
    sha.update(chunk.data(), static_cast<std::size_t>(got));
    at += got;
  }
}

std::string sha256_file(const std::filesystem::path& path) {
  return sha256_file(io::open_file(path, "file").get(), path);
}

std::string sha256_text(std::string_view text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.finish("a text");
}

}  // namespace frt::models
