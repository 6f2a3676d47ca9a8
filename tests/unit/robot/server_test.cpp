// SPDX-License-Identifier: Apache-2.0
// What a client of the policy server reads, byte by byte, when its connection ends in the middle of
// something.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "net/address.hpp"
#include "robot/service/context.hpp"
#include "robot/service/server.hpp"

namespace {

using namespace std::chrono_literals;
using frt::host::PolicyServer;
using frt::host::ServerOptions;

// More than the sockets of both sides hold.
constexpr std::size_t kMuch = std::size_t{16} << 20;

struct RunningServer {
  explicit RunningServer(ServerOptions options)
      : server(local(std::move(options)), [] { return std::string(kMuch, 'x'); }), thread([this] {
          server.run([](const auto&) { return std::string("ok"); },
                     [this] { return stopped.load(); });
        }) {}
  ~RunningServer() {
    stopped = true;
    thread.join();
  }
  static ServerOptions local(ServerOptions options) {
    options.listen = "127.0.0.1:0";
    return options;
  }

  std::atomic<bool> stopped{false};
  PolicyServer server;
  std::thread thread;
};

struct Peer {
  Peer(const RunningServer& running, std::string_view bytes)
      : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(running.server.port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    REQUIRE(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  ~Peer() { ::close(socket); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Reads up to `most`; false: the server has closed.
  bool read(std::size_t most) {
    std::string part(most, '\0');
    const ssize_t count = ::recv(socket, part.data(), part.size(), 0);
    if (count > 0) got.append(part, 0, static_cast<std::size_t>(count));
    return count > 0;
  }
  void read_all() {
    while (read(std::size_t{1} << 20)) {
    }
  }

  int socket;
  std::string got;
};

const std::string kUpgrade =
    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const std::string kGetMetrics = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

// Nothing but the response, as far as it came.
void check_response(const std::string& got) {
  CHECK(got.starts_with("HTTP/1.1 200"));
  CHECK(got.size() < kMuch);
  CHECK(got.find("HTTP/1.1 ", 1) == std::string::npos);
}

}  // namespace

TEST_CASE("a response that is half written at its deadline ends there, without another in it") {
  ServerOptions options;
  options.handshake_timeout = 300ms;
  RunningServer running(options);
  Peer peer(running, kGetMetrics);
  while (running.server.counters().handshake_timeouts == 0) {
    peer.read(16 << 10);  // there is a little room in the server's socket all the time
    std::this_thread::sleep_for(2ms);
  }
  peer.read_all();
  check_response(peer.got);
}

TEST_CASE("a response that is half written ends there when a newer connection takes its place") {
  ServerOptions options;
  options.max_clients = 1;
  options.max_connections = 2;
  RunningServer running(options);
  Peer peer(running, kGetMetrics);
  for (int i = 0; i < 20; ++i) {
    peer.read(16 << 10);
    std::this_thread::sleep_for(2ms);
  }
  Peer second(running, "GET "), third(running, "GET ");
  while (running.server.counters().displaced == 0) {
    peer.read(16 << 10);
    std::this_thread::sleep_for(2ms);
  }
  peer.read_all();
  check_response(peer.got);
}

TEST_CASE(
    "a pong that is half written when the client is given up ends there, without a text in it") {
  ServerOptions options;
  options.metadata = "m";
  options.ping_interval = 200ms;
  RunningServer running(options);
  Peer peer(running, kUpgrade);
  while (!peer.got.ends_with("\x82\x01m")) REQUIRE(peer.read(1));
  peer.got.clear();
  const std::string ping = std::string("\x89\xfd\0\0\0\0", 6) + std::string(125, 'p');
  // Until both directions are full: then the server waits for room for a pong.
  std::size_t sent = 0;
  for (pollfd writable{peer.socket, POLLOUT, 0}; ::poll(&writable, 1, 100) == 1;) {
    const std::string_view left = std::string_view(ping).substr(sent % ping.size());
    const ssize_t count =
        ::send(peer.socket, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    REQUIRE(count > 0);
    sent += static_cast<std::size_t>(count);
  }
  while (running.server.counters().silent == 0) {
    peer.read(4 << 10);
    std::this_thread::sleep_for(2ms);
  }
  peer.read_all();
  // Frames of less than 126 bytes, the last one perhaps cut; all that is in a pong is the ping's.
  std::string_view rest(peer.got);
  while (rest.size() >= 2) {
    const auto kind = static_cast<unsigned char>(rest[0]);
    const std::string_view payload = rest.substr(2, static_cast<unsigned char>(rest[1]));
    if (kind == 0x8a) {
      CHECK(payload.find_first_not_of('p') == payload.npos);
    } else {
      CHECK((kind == 0x81 || kind == 0x88 || kind == 0x89));
    }
    rest.remove_prefix(2 + payload.size());
  }
}

TEST_CASE("frames before the answer to the upgrade are refused, not lost") {
  ServerOptions options;
  RunningServer running(options);
  Peer peer(running, kUpgrade + std::string("\x89\x80\0\0\0\0", 6));
  peer.read_all();
  CHECK(peer.got.starts_with("HTTP/1.1 400"));
}

TEST_CASE("places are counted by IPv4 address and by IPv6 network, mapped addresses as IPv4") {
  const auto counted = [](const char* text) {
    return frt::host::counted_address(boost::asio::ip::make_address(text)).to_string();
  };
  CHECK(counted("192.0.2.7") == "192.0.2.7");
  CHECK(counted("2001:db8:1:2:3:4:5:6") == counted("2001:db8:1:2::1"));
  CHECK(counted("2001:db8:1:2::1") != counted("2001:db8:1:3::1"));
  CHECK(counted("::ffff:192.0.2.7") == "192.0.2.7");
  CHECK(counted("::ffff:127.0.0.1") == "127.0.0.1");
  CHECK(counted("::1") == "::1");
}

TEST_CASE("an address has half of the places unless more are given, and this machine has all") {
  const auto places = [](const char* address, uint32_t all, std::optional<uint32_t> given) {
    ServerOptions options;
    options.max_clients = all;
    options.max_clients_per_address = given;
    return frt::host::ServerContext(options, {})
        .most_clients_of(boost::asio::ip::make_address(address));
  };
  CHECK(places("192.0.2.7", 8, std::nullopt) == 4);
  CHECK(places("192.0.2.7", 3, std::nullopt) == 2);
  CHECK(places("192.0.2.7", 1, std::nullopt) == 1);
  CHECK(places("127.0.0.2", 8, std::nullopt) == 8);
  CHECK(places("::1", 8, std::nullopt) == 8);
  CHECK(places("192.0.2.7", 8, 0) == 8);
  CHECK(places("127.0.0.1", 8, 3) == 3);
}
