// SPDX-License-Identifier: Apache-2.0
// tls_context.hpp - who a server is to clients of TLS: its certificate, its key, and what it agrees
// to.
//
// TLS 1.2 with forward secrecy and AEAD ciphers, or TLS 1.3; ALPN "http/1.1"; no renegotiation, no
// compression, no resumption: nothing is stored of a session, and no key outlives its connection.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace frt::host {

struct TlsDelete {
  void operator()(SSL_CTX* context) const noexcept;
  void operator()(SSL* session) const noexcept;
};

// Immutable; connections that were made with it keep what they need.  [any]
class TlsContext {
 public:
  // `certificate`: PEM, the server's own first, then those between it and its authority. `key`:
  // PEM, not encrypted, a file that nobody but its owner can use. FRT_ERR_NOT_FOUND and FRT_ERR_IO
  // as io::read_file(), FRT_ERR_FORMAT for what is no PEM, FRT_ERR_BAD_STATE for the rights of the
  // key's file, FRT_ERR_MISMATCH for a key of another certificate, FRT_ERR_INVALID_ARGUMENT for one
  // that has expired, is not valid yet or is too weak; each names the file and what to do.  [any]
  static std::shared_ptr<const TlsContext> load(const std::filesystem::path& certificate,
                                                const std::filesystem::path& key);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  SSL_CTX* get() const noexcept { return context_.get(); }
  // The end of the first certificate of the file to expire, seconds since 1970.
  int64_t expires() const noexcept { return expires_; }
  // "CN = example.org, until 2027-01-31 12:00:00 UTC", for the log.
  std::string summary() const;

 private:
  TlsContext();

  std::unique_ptr<SSL_CTX, TlsDelete> context_;
  std::string subject_;
  int64_t expires_ = 0;
};

// What a client believes: the authorities of this system, or those of `authorities` (PEM) alone.
// The context verifies the server's certificate. FRT_ERR_NOT_FOUND, FRT_ERR_IO, FRT_ERR_FORMAT.
// [any]
std::unique_ptr<SSL_CTX, TlsDelete> tls_client_context(const std::filesystem::path& authorities);

}  // namespace frt::host
