// SPDX-License-Identifier: Apache-2.0
// Any bytes, in any pieces, are requests of a connection or a refusal: what comes back is HTTP, and
// in the end nothing is left of the connection, whether its client goes or says nothing more.
//
// The first byte chooses how the client ends and the size of the pieces; the rest is what it sends.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/connection.hpp"

namespace {

using namespace frt::host;
using Clock = ServerClock;

// Echoes bodies: /stream in pieces, /drop not at all, /no before its body.
struct Echo : HttpService {
  std::optional<HttpResponse> admit(HttpRequest& head) override {
    if (head.path == "/no") return HttpResponse{.status = 404};
    return std::nullopt;
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    const std::string& path = exchange->request().path;
    if (path == "/drop") {
      ++dropped;
      return;
    }
    if (path != "/stream") return exchange->respond({.body = exchange->take_body()});
    exchange->begin({.content_type = "text/event-stream"});
    std::string body = exchange->take_body();
    exchange->release_body();
    exchange->write(std::string_view(body).substr(0, body.size() / 2));
    exchange->write(std::string_view(body).substr(body.size() / 2));
    exchange->end();
  }
  HttpResponse error_response(const HttpRequest&, int status, const std::string& text) override {
    return {.status = status, .body = text};
  }
  HttpHeaders standard_headers(const HttpRequest&) override { return {}; }
  void finished(const HttpOutcome&) noexcept override {}

  uint64_t dropped = 0;
};

class World {
 public:
  World() : shared_(options(), service_) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) std::abort();
    client_ = pair[0];
    HttpConnection::Socket socket(shared_.io);
    socket.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), pair[1]);
    std::make_shared<HttpConnection>(shared_, std::move(socket), boost::asio::ip::address(), true,
                                     nullptr)
        ->start();
  }
  ~World() {
    if (client_ >= 0) close(client_);
  }

  // As the server's loop does.
  void turn() {
    for (bool again = true; again;) {
      again = shared_.io.poll() > 0;
      const ExchangeQueue::Ready ready = shared_.queue->take();
      for (const auto& exchange : ready.exchanges) {
        if (const auto connection = exchange->connection()) connection->send_output(*exchange);
      }
      for (const auto& weak : ready.abandoned) {
        if (const auto connection = weak.lock()) connection->abandoned();
      }
      again = again || !ready.exchanges.empty() || !ready.abandoned.empty();
      read();
    }
    shared_.io.restart();
  }
  void send(std::string_view piece) {
    if (::send(client_, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) return;
    turn();
  }
  void leave() {
    close(client_);
    client_ = -1;
    turn();
  }
  // The client says nothing for days.
  void wait() {
    constexpr int kStates = 8;  // more than HttpWait has
    for (int i = 0; i < kStates; ++i) {
      now_ += std::chrono::hours(24);
      for (std::size_t at = 0; at < shared_.connections.size(); ++at) {
        const auto hold = shared_.connections[at]->weak_from_this().lock();
        if (hold) hold->tend(now_);
      }
      turn();
    }
  }
  bool is_empty() const {
    return shared_.connections.empty() && shared_.queue->memory.used() == 0 &&
           shared_.counters.failures <= service_.dropped;
  }

 private:
  static HttpOptions options() {
    HttpOptions options;
    options.max_body = 4096;
    options.buffer_memory = 8192;
    options.max_head = 1024;
    options.stream_buffer = 2048;
    return options;
  }
  void read() {
    if (client_ < 0) return;
    char buffer[16384];
    for (;;) {
      const ssize_t got = recv(client_, buffer, sizeof(buffer), 0);
      if (got <= 0) return;
      constexpr std::string_view kStart = "HTTP/1.1 ";
      for (ssize_t i = 0; i < got && seen_ < kStart.size(); ++i, ++seen_) {
        if (buffer[i] != kStart[seen_]) std::abort();
      }
    }
  }

  Echo service_;
  HttpShared shared_;
  int client_ = -1;
  std::size_t seen_ = 0;  // of the first answer
  Clock::time_point now_ = Clock::now();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool leaves = (data[0] & 1) != 0;
  const std::size_t piece = std::size_t{1} << ((data[0] >> 1) % 16);
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  World world;
  while (!bytes.empty()) {
    world.send(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  if (leaves) {
    world.leave();
  } else {
    world.wait();
  }
  if (!world.is_empty()) std::abort();
  return 0;
}
