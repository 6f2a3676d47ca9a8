// SPDX-License-Identifier: Apache-2.0
// tls_channel.hpp - TLS over a connected socket, a step at a time. It waits for nothing: a step
// that needs the socket to be ready says for what. One thread; the socket is its owner's, and
// outlives it.
//
// Asio's ssl::stream would hold 68 KB of buffers for each connection beside OpenSSL's own; here an
// idle connection holds none.
#pragma once

#include <boost/asio/socket_base.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "net/tls_context.hpp"

namespace frt::host {

// What became of a step.
struct TlsStep {
  // The socket must be ready for this; then the same step again.
  std::optional<boost::asio::socket_base::wait_type> wait;
  // TLS is over, unless there is none: asio::error::eof for a peer that said that it ends,
  // errc::protocol_error for one that broke the protocol, another for one that left.
  boost::system::error_code error;
  std::size_t bytes = 0;
};

// Where OpenSSL reads and writes.
struct TlsPeer {
  int socket = -1;
  std::size_t room = 0;  // bytes that this step may still read
};

class TlsChannel {
 public:
  // The side of the server.
  TlsChannel(const TlsContext& context, int socket);
  // The side of the client, which wants `host` (a name or an address) in the server's certificate.
  TlsChannel(SSL_CTX& context, int socket, const std::string& host);
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  TlsStep handshake() noexcept;
  TlsStep read(void* data, std::size_t size) noexcept;
  TlsStep write(const void* data, std::size_t size) noexcept;
  // Tells the peer that nothing more comes; what it sends may still be read.
  TlsStep close() noexcept;

  // The peer's first bytes were HTTP: it does not know that TLS is spoken here.
  bool met_plain_http() const noexcept { return plain_http_; }
  // Why the last step failed, in OpenSSL's words; of a client, why it does not believe the server.
  const std::string& failure() const noexcept { return failure_; }

 private:
  TlsChannel(SSL_CTX* context, int socket);
  template <class Step>
  TlsStep run(const Step& step) noexcept;

  TlsPeer peer_;  // before session_, which reads through it
  std::unique_ptr<SSL, TlsDelete> session_;
  bool failed_ = false, plain_http_ = false, renegotiates_ = false;
  std::string failure_;
};

}  // namespace frt::host
