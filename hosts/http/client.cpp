// SPDX-License-Identifier: Apache-2.0
// HTTP/1.0: the answer ends with the connection.
#include "http/client.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <boost/asio/error.hpp>
#include <cerrno>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "net/tls_channel.hpp"

namespace frt::host {
namespace {

constexpr std::string_view kPlain = "http://", kSecure = "https://";
constexpr std::size_t kMost = std::size_t{1} << 20;

// Where a server is, as "http://HOST:PORT" says.
struct Server {
  std::string base, authority, host, port;
  bool secure = false;
};

Server parse_base(const std::string& base) {
  Server server{
      .base = base, .authority = {}, .host = {}, .port = {}, .secure = base.starts_with(kSecure)};
  if (server.secure || base.starts_with(kPlain)) {
    server.authority = base.substr((server.secure ? kSecure : kPlain).size());
  }
  const std::string& where = server.authority;
  const std::size_t colon = where.rfind(':');
  if (colon == where.npos || colon == 0 || colon + 1 == where.size() ||
      where.find_first_not_of("0123456789", colon + 1) != where.npos ||
      where.find_first_of("/ \r\n") != where.npos) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "'" + base + "' is no http://HOST:PORT, nor https://");
  }
  server.host = where.substr(0, colon);
  if (server.host.starts_with('[') && server.host.ends_with(']')) {
    server.host = server.host.substr(1, server.host.size() - 2);
  }
  server.port = where.substr(colon + 1);
  return server;
}

[[noreturn]] void fail(const std::string& base, const std::string& why) {
  throw Error(FRT_ERR_IO, base + " does not answer: " + why + "; is the server running there?");
}

std::string last_error() {
  return std::generic_category().message(errno);
}

io::Descriptor connect_to(const Server& server, std::chrono::seconds patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &found)) {
    fail(server.base, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  for (const addrinfo* one = found; one; one = one->ai_next) {
    io::Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{.tv_sec = patience.count(), .tv_usec = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return socket;
  }
  fail(server.base, last_error());
}

// Bytes to and from the server, in plain or within TLS. The socket blocks, so a step that would
// have to wait has waited as long as it may.
class Line {
 public:
  Line(const Server& server, const std::filesystem::path& authorities,
       std::chrono::seconds patience)
      : base_(server.base), socket_(connect_to(server, patience)) {
    if (!server.secure) return;
    context_ = tls_client_context(authorities);
    tls_.emplace(*context_, socket_.get(), server.host);
    const TlsStep done = tls_->handshake();
    if (!done.wait && !done.error) return;
    if (done.wait || tls_->failure().empty()) fail(base_, "it does not answer by TLS");
    throw Error(FRT_ERR_IO, base_ + " is not trusted: " + tls_->failure() +
                                "; name the authority of its certificate with --ca-file");
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const TlsStep done = put(bytes);
      if (done.wait || done.error) fail(base_, said(done));
      bytes.remove_prefix(done.bytes);
    }
  }
  // 0: the end.
  std::size_t receive(char* data, std::size_t size) {
    const TlsStep done = get(data, size);
    if (done.error == boost::asio::error::eof) return 0;
    if (done.wait || done.error) fail(base_, said(done));
    return done.bytes;
  }

 private:
  TlsStep put(std::string_view bytes) {
    if (tls_) return tls_->write(bytes.data(), bytes.size());
    return plain(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  TlsStep get(char* data, std::size_t size) {
    if (tls_) return tls_->read(data, size);
    TlsStep done = plain(::recv(socket_.get(), data, size, 0));
    if (!done.error && done.bytes == 0) done.error = boost::asio::error::eof;
    return done;
  }
  static TlsStep plain(ssize_t count) {
    TlsStep done;
    if (count < 0) done.error = {errno, boost::system::system_category()};
    if (count > 0) done.bytes = static_cast<std::size_t>(count);
    return done;
  }
  static std::string said(const TlsStep& done) {
    return done.wait ? "it is silent" : done.error.message();
  }

  const std::string base_;
  const io::Descriptor socket_;
  std::unique_ptr<SSL_CTX, TlsDelete> context_;
  std::optional<TlsChannel> tls_;
};

}  // namespace

FetchedAnswer http_get(const std::string& base, const std::string& path, const std::string& secret,
                       const std::filesystem::path& authorities, std::chrono::seconds patience) {
  const Server server = parse_base(base);
  Line line(server, authorities, patience);
  std::string request = "GET " + path + " HTTP/1.0\r\nHost: " + server.authority + "\r\n";
  if (!secret.empty()) request += "Authorization: Bearer " + secret + "\r\n";
  line.send(request + "\r\n");
  std::string answer;
  char part[4096];
  while (const std::size_t count = line.receive(part, sizeof(part))) {
    answer.append(part, count);
    if (answer.size() > kMost) fail(base, "its answer is longer than 1 MiB");
  }
  const std::size_t body = answer.find("\r\n\r\n");
  const std::size_t space = answer.find(' ');
  if (!answer.starts_with("HTTP/1.") || body == answer.npos || space + 4 > body) {
    fail(base, "its answer is no HTTP");
  }
  FetchedAnswer fetched;
  for (const char c : answer.substr(space + 1, 3)) {
    if (c < '0' || c > '9') fail(base, "its answer is no HTTP");
    fetched.status = fetched.status * 10 + (c - '0');
  }
  fetched.body = answer.substr(body + 4);
  return fetched;
}

}  // namespace frt::host
