// SPDX-License-Identifier: Apache-2.0
// SHA-256 through OpenSSL.
#include <frt/core/digest.hpp>
#include <frt/error.hpp>

#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace frt::core {

namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;

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

}  // namespace frt::core
