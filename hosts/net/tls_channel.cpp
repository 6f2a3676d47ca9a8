// SPDX-License-Identifier: Apache-2.0
#include "net/tls_channel.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/system/errc.hpp>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <frt/io/retry.hpp>
#include <new>

namespace frt::host {
namespace {

namespace asio = boost::asio;

// ---- OpenSSL's way to the socket: as its own, but a peer that is gone raises no SIGPIPE ----

TlsPeer& peer_of(BIO* bio) {
  return *static_cast<TlsPeer*>(BIO_get_data(bio));
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK;
}

int put(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = io::retried([&] {
    return ::send(peer_of(bio).socket, data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  });
  if (sent < 0 && would_block()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int get(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  TlsPeer& peer = peer_of(bio);
  if (peer.room == 0) {  // the turn of the others; the socket stays readable
    BIO_set_retry_read(bio);
    return -1;
  }
  const std::size_t most = std::min(static_cast<std::size_t>(size), peer.room);
  const ssize_t got = io::retried([&] { return ::recv(peer.socket, data, most, 0); });
  if (got > 0) peer.room -= static_cast<std::size_t>(got);
  if (got < 0 && would_block()) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

int created(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

// One for the program, as OpenSSL counts kinds and never forgets one.
const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (!method) throw std::bad_alloc();
    BIO_meth_set_write(method, put);
    BIO_meth_set_read(method, get);
    BIO_meth_set_ctrl(method, control);
    BIO_meth_set_create(method, created);
    return method;
  }();
  return kMethod;
}

// What one step reads at most. OpenSSL reads on over records without content, such as KeyUpdate of
// TLS 1.3, for as long as the socket has any; a list of certificates (100 KB) fits.
constexpr std::size_t kStepBytes = 128 << 10;

// OpenSSL declines a renegotiation and goes on, as often as it is asked. In TLS 1.2 no other record
// of a handshake comes once it is over.
void note_record(int is_write, int, int type, const void* data, std::size_t size, SSL* session,
                 void* renegotiates) {
  const bool head = is_write == 0 && type == SSL3_RT_HEADER && size > 0;
  if (!head || *static_cast<const unsigned char*>(data) != SSL3_RT_HANDSHAKE) return;
  if (SSL_version(session) > TLS1_2_VERSION || SSL_is_init_finished(session) == 0) return;
  *static_cast<bool*>(renegotiates) = true;
}

}  // namespace

TlsChannel::TlsChannel(SSL_CTX* context, int socket)
    : peer_{socket, 0}, session_(SSL_new(context)) {
  BIO* const bio = session_ ? BIO_new(socket_method()) : nullptr;
  if (!bio) throw std::bad_alloc();
  BIO_set_data(bio, &peer_);
  SSL_set_bio(session_.get(), bio, bio);
  SSL_set_msg_callback(session_.get(), note_record);
  SSL_set_msg_callback_arg(session_.get(), &renegotiates_);
}

TlsChannel::TlsChannel(const TlsContext& context, int socket) : TlsChannel(context.get(), socket) {
  SSL_set_accept_state(session_.get());
}

TlsChannel::TlsChannel(SSL_CTX& context, int socket, const std::string& host)
    : TlsChannel(&context, socket) {
  SSL_set_connect_state(session_.get());
  boost::system::error_code no_address;
  asio::ip::make_address(host, no_address);
  const bool set =
      no_address ? SSL_set_tlsext_host_name(session_.get(), host.c_str()) == 1 &&
                       SSL_set1_host(session_.get(), host.c_str()) == 1
                 : X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session_.get()), host.c_str()) == 1;
  if (!set) throw std::bad_alloc();
}

template <class Step>
TlsStep TlsChannel::run(const Step& step) noexcept {
  TlsStep done;
  if (failed_) {
    done.error = asio::error::bad_descriptor;
    return done;
  }
  ERR_clear_error();
  errno = 0;
  peer_.room = kStepBytes;
  const int result = step();
  const int code = errno;
  if (renegotiates_) {
    failed_ = true;
    done.error = boost::system::errc::make_error_code(boost::system::errc::protocol_error);
    return done;
  }
  if (result > 0) return done;
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      done.wait = asio::socket_base::wait_read;
      return done;
    case SSL_ERROR_WANT_WRITE:
      done.wait = asio::socket_base::wait_write;
      return done;
    case SSL_ERROR_ZERO_RETURN:
      done.error = asio::error::eof;
      return done;
    case SSL_ERROR_SYSCALL:
      failed_ = true;
      done.error = code != 0 ? boost::system::error_code(code, boost::system::system_category())
                             : asio::error::make_error_code(asio::error::connection_reset);
      return done;
    default:
      break;
  }
  failed_ = true;
  const unsigned long error = ERR_peek_last_error();
  const int reason = ERR_GET_REASON(error);
  plain_http_ = reason == SSL_R_HTTP_REQUEST;
  const bool left = reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  done.error = left ? asio::error::make_error_code(asio::error::connection_reset)
                    : boost::system::errc::make_error_code(boost::system::errc::protocol_error);
  try {
    const long verdict = SSL_get_verify_result(session_.get());
    const char* const text = verdict != X509_V_OK ? X509_verify_cert_error_string(verdict)
                                                  : ERR_reason_error_string(error);
    failure_ = text ? text : "TLS failed";
  } catch (const std::bad_alloc&) {
    failure_.clear();
  }
  ERR_clear_error();
  return done;
}

TlsStep TlsChannel::handshake() noexcept {
  return run([&] { return SSL_do_handshake(session_.get()); });
}

TlsStep TlsChannel::read(void* data, std::size_t size) noexcept {
  std::size_t got = 0;
  TlsStep done = run([&] { return SSL_read_ex(session_.get(), data, size, &got); });
  done.bytes = got;
  return done;
}

TlsStep TlsChannel::write(const void* data, std::size_t size) noexcept {
  std::size_t put = 0;
  TlsStep done = run([&] { return SSL_write_ex(session_.get(), data, size, &put); });
  done.bytes = put;
  return done;
}

// 0: told, and the peer has not answered yet.
TlsStep TlsChannel::close() noexcept {
  return run([&] {
    const int result = SSL_in_init(session_.get()) ? 1 : SSL_shutdown(session_.get());
    return result == 0 ? 1 : result;
  });
}

}  // namespace frt::host
