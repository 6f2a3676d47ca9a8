// SPDX-License-Identifier: Apache-2.0
#include "net/secret.hpp"

#include <openssl/crypto.h>

namespace frt::host {

bool equal_secret(std::string_view given, std::string_view secret) noexcept {
  return given.size() == secret.size() &&
         CRYPTO_memcmp(given.data(), secret.data(), given.size()) == 0;
}

}  // namespace frt::host
