// SPDX-License-Identifier: Apache-2.0
// HTTP/1.0: the answer ends with the connection.
#include "http/client.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <memory>
#include <string_view>
#include <system_error>

namespace frt::host {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::size_t kMost = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& base, const std::string& why) {
  throw Error(FRT_ERR_IO, base + " does not answer: " + why + "; is the server running there?");
}

io::Descriptor connect_to(const std::string& base, std::chrono::seconds patience) {
  const std::string where = base.substr(kScheme.size());
  const std::size_t colon = where.rfind(':');
  std::string host = where.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), where.c_str() + colon + 1, &hints, &found)) {
    fail(base, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  for (const addrinfo* one = found; one; one = one->ai_next) {
    io::Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{.tv_sec = patience.count(), .tv_usec = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return socket;
  }
  fail(base, std::generic_category().message(errno));
}

}  // namespace

FetchedAnswer http_get(const std::string& base, const std::string& path, const std::string& secret,
                       std::chrono::seconds patience) {
  const std::string host = base.starts_with(kScheme) ? base.substr(kScheme.size()) : "";
  const std::size_t colon = host.rfind(':');
  if (colon == host.npos || colon == 0 ||
      host.find_first_not_of("0123456789", colon + 1) != host.npos ||
      host.find_first_of("/ \r\n") != host.npos || colon + 1 == host.size()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "'" + base + "' is no http://HOST:PORT");
  }
  const io::Descriptor socket = connect_to(base, patience);
  std::string request = "GET " + path + " HTTP/1.0\r\nHost: " + host + "\r\n";
  if (!secret.empty()) request += "Authorization: Bearer " + secret + "\r\n";
  request += "\r\n";
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    fail(base, std::generic_category().message(errno));
  }
  std::string answer;
  char part[4096];
  for (ssize_t count = 0; (count = ::recv(socket.get(), part, sizeof(part), 0)) != 0;) {
    if (count < 0) fail(base, std::generic_category().message(errno));
    answer.append(part, static_cast<std::size_t>(count));
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
