// SPDX-License-Identifier: Apache-2.0
// A client that floods a server with records that carry nothing: KeyUpdate of TLS 1.3, which costs
// the server two derivations each, and an answer where the client wants one.
#include "net/tls_channel.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "net/tls_context.hpp"

namespace {

using namespace frt::host;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

// A certificate that signs itself, and its key, in a folder that goes with it.
struct Files {
  Files() {
    std::string name = (std::filesystem::temp_directory_path() / "frt-tls-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder = name;
    const std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>> secret(EVP_EC_gen("P-256"));
    const std::unique_ptr<X509, Freed<X509_free>> own(X509_new());
    X509_set_version(own.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(own.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(own.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(own.get()), 3600);
    X509_set_pubkey(own.get(), secret.get());
    X509_NAME* const subject = X509_get_subject_name(own.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(own.get(), subject);
    REQUIRE(X509_sign(own.get(), secret.get(), EVP_sha256()) > 0);
    const auto write = [](const std::filesystem::path& path, const auto& put) {
      const std::unique_ptr<FILE, Freed<std::fclose>> file(std::fopen(path.c_str(), "w"));
      REQUIRE(file);
      REQUIRE(chmod(path.c_str(), 0600) == 0);
      REQUIRE(put(file.get()) == 1);
    };
    write(certificate(), [&](FILE* file) { return PEM_write_X509(file, own.get()); });
    write(key(), [&](FILE* file) {
      return PEM_write_PrivateKey(file, secret.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
  }
  ~Files() { std::filesystem::remove_all(folder); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::filesystem::path certificate() const { return folder / "certificate.pem"; }
  std::filesystem::path key() const { return folder / "key.pem"; }

  std::filesystem::path folder;
};

// Both ends of a connection whose handshake is over; the server's does not block.
struct Connection {
  explicit Connection(const TlsContext& context) {
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    REQUIRE(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    server = std::make_unique<TlsChannel>(context, ends[0]);
    client_context.reset(SSL_CTX_new(TLS_client_method()));
    client.reset(SSL_new(client_context.get()));
    REQUIRE(SSL_set_fd(client.get(), ends[1]) == 1);
    int connected = 0;
    std::thread other([&] { connected = SSL_connect(client.get()); });
    for (TlsStep step = server->handshake(); step.wait; step = server->handshake()) {
      REQUIRE_FALSE(step.error);
    }
    other.join();
    REQUIRE(connected == 1);
    REQUIRE(SSL_version(client.get()) == TLS1_3_VERSION);
  }
  ~Connection() {
    for (const int end : ends) close(end);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The bytes of `count` KeyUpdate records, and of `text` behind them.
  std::string updates(int count, int kind, const std::string& text) const {
    BIO* const memory = BIO_new(BIO_s_mem());
    SSL_set0_wbio(client.get(), memory);
    for (int i = 0; i < count; ++i) {
      REQUIRE(SSL_key_update(client.get(), kind) == 1);
      REQUIRE(SSL_do_handshake(client.get()) == 1);
    }
    REQUIRE(SSL_write(client.get(), text.data(), static_cast<int>(text.size())) > 0);
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(memory, &bytes);
    return {bytes, static_cast<std::size_t>(size)};
  }

  std::array<int, 2> ends{-1, -1};
  std::unique_ptr<TlsChannel> server;
  std::unique_ptr<SSL_CTX, TlsDelete> client_context;
  std::unique_ptr<SSL, TlsDelete> client;
};

}  // namespace

TEST_CASE("a flood of KeyUpdate gives the others their turn, and what follows it arrives") {
  constexpr std::size_t kTurn = 128 << 10;  // bytes that a step may read
  const Files files;
  const auto context = TlsContext::load(files.certificate(), files.key());
  for (const int kind : {SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED}) {
    CAPTURE(kind);
    Connection connection(*context);
    const int room = 1 << 20;  // as much as the system lets it have
    setsockopt(connection.ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    const std::string flood = connection.updates(20000, kind, "hello");
    REQUIRE(flood.size() > 3 * kTurn);
    const auto waiting = [&] {
      int bytes = 0;
      REQUIRE(ioctl(connection.ends[0], FIONREAD, &bytes) == 0);
      return static_cast<std::size_t>(bytes);
    };
    std::size_t sent = 0, most_before = 0, most_read = 0;
    std::array<char, 64> got{};
    std::array<char, 4096> answers{};
    TlsStep step;
    do {
      while (sent < flood.size()) {
        const std::size_t part = std::min<std::size_t>(flood.size() - sent, 16384);
        const ssize_t put = send(connection.ends[1], flood.data() + sent, part, MSG_DONTWAIT);
        if (put <= 0) break;
        sent += static_cast<std::size_t>(put);
      }
      while (recv(connection.ends[1], answers.data(), answers.size(), MSG_DONTWAIT) > 0) {
      }
      const std::size_t before = waiting();
      step = connection.server->read(got.data(), got.size());
      most_before = std::max(most_before, before);
      most_read = std::max(most_read, before - waiting());
    } while (step.wait && !step.error);
    CHECK_FALSE(step.error);
    CHECK(std::string(got.data(), step.bytes) == "hello");
    REQUIRE(most_before > kTurn);
    CHECK(most_read <= kTurn);
  }
}
