// SPDX-License-Identifier: Apache-2.0
// The server's thread runs a loop: what has arrived (Asio), what was answered, deadlines, the
// listener. What throws out of a handler ends at most the connection whose handler it was.
#include "http/server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <frt/error.hpp>
#include <mutex>
#include <thread>
#include <utility>

#include "http/connection.hpp"
#include "net/guests.hpp"
#include "net/listener.hpp"

namespace frt::host {
namespace {

namespace asio = boost::asio;

// The loop comes around at least this often, for a wake-up that was lost for want of memory.
constexpr std::chrono::milliseconds kRound{100};
// Handlers that run before answers and deadlines get their turn.
constexpr int kBatch = 64;

// Made once: when it is needed there is no time for more.
std::string full_answer(HttpService& service) {
  const HttpResponse response =
      service.error_response({}, 503, "the server has as many connections as it may");
  return "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: "
         "1\r\nContent-Type: " +
         response.content_type + "\r\nContent-Length: " + std::to_string(response.body.size()) +
         "\r\n\r\n" + response.body;
}

}  // namespace

const char* refusal_name(HttpRefusal refusal) noexcept {
  switch (refusal) {
    case HttpRefusal::kMalformed:
      return "malformed";
    case HttpRefusal::kHeadTooLarge:
      return "head_too_large";
    case HttpRefusal::kBodyTooLarge:
      return "body_too_large";
    case HttpRefusal::kHeadTimeout:
      return "head_timeout";
    case HttpRefusal::kBodyTimeout:
      return "body_timeout";
    case HttpRefusal::kWriteTimeout:
      return "write_timeout";
    case HttpRefusal::kSlowClient:
      return "slow_client";
    case HttpRefusal::kMemory:
      return "memory";
    case HttpRefusal::kConnections:
      return "connections";
    case HttpRefusal::kDescriptors:
      return "descriptors";
    case HttpRefusal::kDisplaced:
      return "displaced";
    case HttpRefusal::kDraining:
      return "draining";
    case HttpRefusal::kTlsHandshake:
      return "tls_handshake";
    case HttpRefusal::kTlsHandshakeTimeout:
      return "tls_handshake_timeout";
    case HttpRefusal::kTlsProtocol:
      return "tls_protocol";
    case HttpRefusal::kPlainHttp:
      return "plain_http";
    case HttpRefusal::kCount:
      break;
  }
  return "";
}

void HttpOptions::check() const {
  parse_listen(listen, true);
  const auto refuse = [](const std::string& text) { throw Error(FRT_ERR_INVALID_ARGUMENT, text); };
  if (max_body == 0) refuse("max_body = 0 lets no request with a body in");
  if (buffer_memory < max_body) {
    refuse("buffer_memory = " + std::to_string(buffer_memory) + " is less than max_body = " +
           std::to_string(max_body) + "; raise the one or lower the other");
  }
}

struct HttpServer::State : AcceptingServer {
  State(HttpOptions options, HttpService& service)
      : shared(std::move(options), service),
        tls_now(shared.options.tls),
        full(full_answer(service)),
        listener(shared.io, parse_listen(shared.options.listen, true), *this),
        thread([this] { serve(); }) {}

  // ---- connections ----
  bool is_plain() const noexcept override { return shared.options.tls == nullptr; }
  bool is_full() const noexcept override {
    return shared.connections.size() >= shared.options.max_connections;
  }
  bool displace() override {
    HttpConnection* guest = oldest_guest(shared.connections, [](const HttpConnection& connection) {
      return connection.is_open() && !connection.is_busy() && !connection.is_uploading();
    });
    if (guest) guest->displace();
    return guest != nullptr;
  }
  void admit(int descriptor, const asio::ip::address& address) override {
    const auto open = static_cast<std::size_t>(std::ranges::count_if(
        shared.connections, [](const HttpConnection* c) { return c->is_open(); }));
    if (open >= shared.options.max_connections) {
      shared.count(HttpRefusal::kConnections);
      if (is_plain()) {
        (void)!::send(descriptor, full.data(), full.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      }
      ::close(descriptor);
      return;
    }
    HttpConnection::Socket socket(shared.io);
    boost::system::error_code error;
    socket.assign(asio::generic::stream_protocol(listener.family(), 0), descriptor, error);
    if (error) {
      ::close(descriptor);
      throw boost::system::system_error(error);
    }
    std::make_shared<HttpConnection>(shared, std::move(socket), address,
                                     listener.family() == AF_UNIX, tls())
        ->start();
  }
  void accept_failed() noexcept override { ++shared.counters.accept_failures; }
  void refused() noexcept override { shared.count(HttpRefusal::kDescriptors); }
  void note_due(ServerClock::time_point due) noexcept override { shared.note_due(due); }

  // ---- the loop ----
  void serve() {
    const auto work = asio::make_work_guard(shared.io);
    while (!stopping || !shared.connections.empty()) {
      try {
        shared.io.run_one_until(std::min(shared.next_due, ServerClock::now() + kRound));
        for (int i = 0; i < kBatch && shared.io.poll_one() > 0; ++i) {
        }
        send_answers();
      } catch (const std::exception&) {
        ++shared.counters.failures;
      }
      tend();
      if (draining && !shared.draining) begin_drain();
      if (stopping) {
        for_each([](HttpConnection& connection) { connection.cut(); });
      }
      report_idle();
    }
  }

  void send_answers() {
    ExchangeQueue::Ready ready = shared.queue->take();
    for (const auto& exchange : ready.exchanges) {
      if (const auto connection = exchange->connection()) connection->send_output(*exchange);
    }
    for (const auto& weak : ready.abandoned) {
      if (const auto connection = weak.lock()) connection->abandoned();
    }
    for (const auto& weak : ready.woken) {
      if (const auto connection = weak.lock()) connection->sink_woke();
    }
  }

  // A connection may go while it is visited, and take no other one along.
  template <class Visit>
  void for_each(const Visit& visit) noexcept {
    for (std::size_t i = 0; i < shared.connections.size();) {
      HttpConnection* const connection = shared.connections[i];
      {
        const auto hold = connection->weak_from_this().lock();
        if (hold) visit(*hold);
      }
      if (i < shared.connections.size() && shared.connections[i] == connection) ++i;
    }
  }

  void tend() noexcept {
    const ServerClock::time_point now = ServerClock::now();
    if (now >= shared.next_due) {
      shared.next_due = ServerClock::time_point::max();
      for_each([&](HttpConnection& connection) {
        if (connection.due() <= now) connection.tend(now);
        shared.note_due(connection.due());
      });
    }
    listener.tend(now);
  }

  void begin_drain() noexcept {
    shared.draining = true;
    listener.close();
    for_each([](HttpConnection& connection) { connection.drain(); });
  }

  void report_idle() {
    if (!shared.draining) return;
    const bool busy = std::ranges::any_of(shared.connections,
                                          [](const HttpConnection* c) { return c->is_busy(); });
    const std::lock_guard lock(mutex);
    idle = !busy;
    changed.notify_all();
  }

  void wake() {
    asio::post(shared.io, [] {});
  }

  void stop() {
    shared.queue->close();
    stopping = true;
    wake();
    thread.join();
  }

  std::shared_ptr<const TlsContext> tls() const {
    const std::lock_guard lock(tls_mutex);
    return tls_now;
  }
  void set_tls(std::shared_ptr<const TlsContext> fresh) {
    const std::lock_guard lock(tls_mutex);
    tls_now.swap(fresh);  // the old one goes without the lock
  }

  HttpShared shared;
  mutable std::mutex tls_mutex;
  std::shared_ptr<const TlsContext> tls_now;  // for new connections
  const std::string full;
  Listener listener;
  std::atomic<bool> draining{false}, stopping{false};
  std::mutex mutex;
  std::condition_variable changed;
  bool idle = false;
  std::thread thread;  // last: it uses all of the above
};

HttpServer::HttpServer(HttpOptions options, HttpService& service) {
  options.check();
  state_ = std::make_unique<State>(std::move(options), service);
}

HttpServer::~HttpServer() {
  state_->stop();
}

uint16_t HttpServer::port() const noexcept {
  return state_->listener.port();
}

const HttpCounters& HttpServer::counters() const noexcept {
  return state_->shared.counters;
}

uint64_t HttpServer::buffered() const noexcept {
  return state_->shared.queue->memory.used();
}

void HttpServer::set_tls(std::shared_ptr<const TlsContext> tls) {
  state_->set_tls(std::move(tls));
}

std::shared_ptr<const TlsContext> HttpServer::tls() const {
  return state_->tls();
}

bool HttpServer::drain(std::chrono::milliseconds patience) {
  state_->draining = true;
  state_->wake();
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [&] { return state_->idle; });
}

}  // namespace frt::host
