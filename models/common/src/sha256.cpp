// SPDX-License-Identifier: Apache-2.0
#include <frt/error.hpp>
#include <frt/models/sha256.hpp>

#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace frt::models {

std::string sha256_file(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) {
    throw Error(errno == ENOENT ? FRT_ERR_NOT_FOUND : FRT_ERR_IO,
                path.string() + ": cannot be opened: " + std::strerror(errno));
  }
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<unsigned char> chunk(std::size_t{1} << 20);
  std::setvbuf(file.get(), nullptr, _IONBF, 0);  // the chunk is the buffer
  while (good) {
    const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), file.get());
    if (count == 0) break;
    good = EVP_DigestUpdate(context.get(), chunk.data(), count) == 1;
  }
  if (std::ferror(file.get())) {
    throw Error(FRT_ERR_IO, path.string() + ": cannot be read: " + std::strerror(errno));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  if (!good || EVP_DigestFinal_ex(context.get(), digest, &length) != 1) {
    throw Error(FRT_ERR_INTERNAL, "the SHA-256 of " + path.string() + " cannot be computed");
  }
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += kHex[digest[i] >> 4];
    text += kHex[digest[i] & 15];
  }
  return text;
}

}  // namespace frt::models
