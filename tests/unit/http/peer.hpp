// SPDX-License-Identifier: Apache-2.0
// peer.hpp - a client of an HttpServer that sends and reads raw bytes.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "http/server.hpp"

namespace frt::test {

struct Peer {
  Peer(const host::HttpServer& server, std::string_view bytes, int receive_buffer = 0)
      : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(server.port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    send(bytes);
  }
  ~Peer() { close(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  bool read() {
    char part[65536];
    const ssize_t count = ::recv(socket, part, sizeof(part), 0);
    if (count > 0) got.append(part, static_cast<std::size_t>(count));
    return count > 0;
  }
  // Until `text` has come; false: the server has closed.
  bool read_until(std::string_view text) {
    while (got.find(text) == got.npos) {
      if (!read()) return false;
    }
    return true;
  }
  const std::string& read_all() {
    while (read()) {
    }
    return got;
  }
  void close() {
    if (socket >= 0) ::close(socket);
    socket = -1;
  }

  int socket;
  std::string got;
};

}  // namespace frt::test
