// SPDX-License-Identifier: Apache-2.0
#include "net/tls_context.hpp"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <array>
#include <climits>
#include <ctime>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/utf8.hpp>
#include <new>
#include <string_view>
#include <vector>

namespace frt::host {
namespace {

namespace fs = std::filesystem;

// The whole chain goes to every client.
constexpr uint64_t kMostCertificates = uint64_t{256} << 10;
constexpr uint64_t kMostKey = uint64_t{64} << 10;
constexpr uint64_t kMostAuthorities = uint64_t{4} << 20;
constexpr int kSecurityLevel = 2;  // of OpenSSL: 112 bits, so RSA from 2048 and no SHA-1
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";
// Not the finite fields, by which a client could make one handshake cost as much as thousands.
constexpr const char* kGroups = "X25519:P-256:P-384";
constexpr std::string_view kProtocol = "http/1.1";

struct Free {
  void operator()(BIO* bio) const noexcept { BIO_free(bio); }
  void operator()(X509* certificate) const noexcept { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

// What OpenSSL says of its last failure, and forgets it.
std::string reason() {
  const char* const text = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return text ? text : "unknown reason";
}

std::unique_ptr<BIO, Free> reader(const std::string& text) {
  std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  if (!bio) throw std::bad_alloc();
  return bio;
}

// OpenSSL would ask on the terminal.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

std::vector<Certificate> certificates(const std::string& text, const std::string& source) {
  const auto bio = reader(text);
  std::vector<Certificate> all;
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr)) {
    all.emplace_back(next);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string why = reason();
  if (at_end && !all.empty()) return all;
  throw Error(FRT_ERR_FORMAT,
              source +
                  (at_end ? " holds no certificate"
                          : " is damaged at certificate " + std::to_string(all.size() + 1) + " (" +
                                why + ")") +
                  "; it must be PEM: lines from -----BEGIN CERTIFICATE----- to -----END "
                  "CERTIFICATE-----");
}

Key private_key(const fs::path& path, const std::string& source) {
  const io::Descriptor file = io::open_file(path, "tls_key");
  struct stat status {};
  if (fstat(file.get(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(FRT_ERR_BAD_STATE, source + " can be used by others; run: chmod 600 FILE");
  }
  std::string text = io::read_to_end(file.get(), source, kMostKey);
  ERR_clear_error();
  Key key(PEM_read_bio_PrivateKey(reader(text).get(), nullptr, no_passphrase, nullptr));
  const bool encrypted = text.find("ENCRYPTED") != text.npos;
  explicit_bzero(text.data(), text.size());
  if (key) return key;
  const std::string why = reason();
  throw Error(FRT_ERR_FORMAT,
              encrypted ? source +
                              " is encrypted, and nobody could be asked for its passphrase; "
                              "write it without: openssl pkey -in FILE -out NEW"
                        : source + " holds no private key in PEM (" + why + ")");
}

std::tm parts_of(const ASN1_TIME* time) {
  std::tm parts{};
  ASN1_TIME_to_tm(time, &parts);
  return parts;
}

std::string time_text(std::tm parts) {
  std::array<char, 40> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

std::string subject_of(const X509& certificate) {
  const std::unique_ptr<BIO, Free> bio(BIO_new(BIO_s_mem()));
  if (!bio) throw std::bad_alloc();
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(&certificate), 0,
                     XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return io::printable(std::string(data, static_cast<std::size_t>(size)));
}

// Throws for a certificate that clients refuse today.
void check_time(const X509& certificate, const std::string& source) {
  const ASN1_TIME* const from = X509_get0_notBefore(&certificate);
  const ASN1_TIME* const until = X509_get0_notAfter(&certificate);
  const std::string which = source + ": the certificate of " + subject_of(certificate);
  if (X509_cmp_current_time(until) < 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                which + " expired on " + time_text(parts_of(until)) + "; renew it");
  }
  if (X509_cmp_current_time(from) > 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, which + " is valid from " + time_text(parts_of(from)) +
                                              " on; wait, or set this machine's clock");
  }
}

// A client that names protocols, and not this one, would not understand what it gets.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
  for (unsigned int at = 0; at < offered_size; at += 1U + offered[at]) {
    const unsigned int length = offered[at];
    if (length > offered_size - at - 1) break;
    const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), length);
    if (name != kProtocol) continue;
    *out = offered + at + 1;
    *size = static_cast<unsigned char>(length);
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

std::unique_ptr<SSL_CTX, TlsDelete> new_context(const SSL_METHOD* method) {
  std::unique_ptr<SSL_CTX, TlsDelete> context(SSL_CTX_new(method));
  if (!context) throw std::bad_alloc();
  const bool good = SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1 &&
                    SSL_CTX_set_cipher_list(context.get(), kCiphers) == 1 &&
                    SSL_CTX_set1_groups_list(context.get(), kGroups) == 1;
  if (!good) throw Error(FRT_ERR_UNSUPPORTED, "this OpenSSL has no modern TLS: " + reason());
  SSL_CTX_set_security_level(context.get(), kSecurityLevel);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  // What waits to be written moves between two tries; idle connections hold no buffers.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context.get(), 1);
  return context;
}

}  // namespace

void TlsDelete::operator()(SSL_CTX* context) const noexcept {
  SSL_CTX_free(context);
}

void TlsDelete::operator()(SSL* session) const noexcept {
  SSL_free(session);
}

TlsContext::TlsContext() : context_(new_context(TLS_server_method())) {
  SSL_CTX_set_alpn_select_cb(context_.get(), choose_protocol, nullptr);
}

std::shared_ptr<const TlsContext> TlsContext::load(const fs::path& certificate,
                                                   const fs::path& key) {
  const std::string certificate_source = "tls_certificate " + certificate.string();
  const std::string key_source = "tls_key " + key.string();
  const std::vector<Certificate> chain = certificates(
      io::read_file(certificate, "tls_certificate", kMostCertificates), certificate_source);
  const Key secret = private_key(key, key_source);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    ERR_clear_error();
    if (X509_check_private_key(chain[i].get(), secret.get()) != 1) continue;
    if (i == 0) break;
    throw Error(FRT_ERR_MISMATCH, certificate_source + ": the key is of its certificate " +
                                      std::to_string(i + 1) +
                                      "; put the server's own certificate first");
  }
  std::shared_ptr<TlsContext> made(new TlsContext);
  SSL_CTX* const context = made->context_.get();
  made->subject_ = subject_of(*chain.front());
  made->expires_ = INT64_MAX;
  for (const Certificate& each : chain) {
    check_time(*each, certificate_source);
    std::tm until = parts_of(X509_get0_notAfter(each.get()));
    made->expires_ = std::min<int64_t>(made->expires_, timegm(&until));
    const int taken = each == chain.front() ? SSL_CTX_use_certificate(context, each.get())
                                            : SSL_CTX_add1_chain_cert(context, each.get());
    if (taken == 1) continue;
    throw Error(FRT_ERR_INVALID_ARGUMENT, certificate_source + ": the certificate of " +
                                              subject_of(*each) + " cannot be used: " + reason() +
                                              "; make one with a key of 2048 bits or more");
  }
  if (X509_check_private_key(chain.front().get(), secret.get()) != 1) {
    ERR_clear_error();
    throw Error(FRT_ERR_MISMATCH, key_source + " is not the key of " + certificate_source +
                                      "; name the two that were made together");
  }
  if (SSL_CTX_use_PrivateKey(context, secret.get()) != 1) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, key_source + " cannot be used: " + reason());
  }
  return made;
}

std::string TlsContext::summary() const {
  const std::time_t end = expires_;
  std::tm parts{};
  gmtime_r(&end, &parts);
  return subject_ + ", until " + time_text(parts);
}

std::unique_ptr<SSL_CTX, TlsDelete> tls_client_context(const fs::path& authorities) {
  auto context = new_context(TLS_client_method());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (authorities.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
    return context;
  }
  const auto known = certificates(io::read_file(authorities, "authorities", kMostAuthorities),
                                  "the file of authorities " + authorities.string());
  for (const Certificate& each : known) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), each.get()) != 1) {
      throw Error(FRT_ERR_FORMAT, authorities.string() + ": " + reason());
    }
  }
  return context;
}

}  // namespace frt::host
