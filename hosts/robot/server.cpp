// SPDX-License-Identifier: Apache-2.0
// Beast and Asio are in this file only. Every connection lives on the one thread of `io`; jobs go
// to the handler's thread through a queue and come back by a post. A job carries the connection's
// number of the request, so that an answer that comes after its deadline finds nobody who waits for
// it.
//
// One write is in flight at most. An error while a write is in flight means that the client does
// not read: the socket is closed at once.
#include "robot/server.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <condition_variable>
#include <deque>
#include <frt/error.hpp>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

namespace frt::host {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kHeaderLimit = 16 << 10;
constexpr std::chrono::seconds kHeaderDeadline{10};
// Connections that have not shown yet that they are clients.
constexpr uint32_t kGuestLimit = 128;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Takes the same time wherever the first difference is.
bool equal_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

class Connection;

struct Job {
  std::shared_ptr<Connection> connection;
  uint64_t number = 0;
  beast::flat_buffer bytes;
  Clock::time_point received;
  double previous_total_ms = -1;
};

// What all connections of a server share.
struct Shared {
  ServerOptions options;
  PolicyServer::Metrics metrics;
  ServerCounters counters;
  std::unordered_set<Connection*> connections;  // on the thread of `io`; outlives what it names
  asio::io_context io{1};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;  // under the mutex
};

std::string metrics_text(const Shared& shared) {
  std::string out;
  const auto line = [&](const char* name, const char* type, uint64_t value) {
    out += std::string("# TYPE frt_robot_") + name + " " + type + "\nfrt_robot_" + name + " " +
           std::to_string(value) + "\n";
  };
  const ServerCounters& counters = shared.counters;
  line("clients", "gauge", counters.clients);
  line("connections_total", "counter", counters.connections);
  line("refused_total", "counter", counters.refused);
  line("requests_total", "counter", counters.requests);
  line("replies_total", "counter", counters.replies);
  line("errors_total", "counter", counters.errors);
  line("deadline_miss_total", "counter", counters.deadline_misses);
  line("slow_client_total", "counter", counters.slow_clients);
  if (shared.metrics) out += shared.metrics();
  return out;
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, tcp::socket socket)
      : shared_(shared), stream_(std::move(socket)), deadline_(shared.io), write_limit_(shared.io) {
    shared_.connections.insert(this);
    ++shared_.counters.connections;
  }
  ~Connection() {
    shared_.connections.erase(this);
    if (client_) --shared_.counters.clients;
  }

  void start() {
    parser_.header_limit(kHeaderLimit);
    parser_.body_limit(kHeaderLimit);
    beast::get_lowest_layer(stream_).expires_after(kHeaderDeadline);
    http::async_read(stream_.next_layer(), buffer_, parser_,
                     [self = shared_from_this()](error_code error, std::size_t) {
                       if (!error) self->on_request();
                     });
  }

  // The reply to request `number`, or the error text in its place.
  void finish(uint64_t number, std::string bytes, bool ok) {
    if (number != number_ || !waiting_ || closing_) return;  // its deadline is over
    waiting_ = false;
    deadline_.cancel();
    if (!ok) return fail(std::move(bytes));
    write(std::move(bytes), true, [self = shared_from_this()] {
      ++self->shared_.counters.replies;
      self->busy_ = false;
      self->previous_total_ms_ = milliseconds_since(self->received_);
    });
  }

  void go_away() {
    if (!open_ || writing_) return close_socket();
    close(websocket::close_code::going_away, "the server stops");
  }

  void close_socket() {
    closing_ = true;
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().close(ignored);
    deadline_.cancel();
    write_limit_.cancel();
  }

 private:
  // ---- HTTP ----
  void on_request() {
    const auto& request = parser_.get();
    if (request.find(http::field::origin) != request.end()) {
      return respond(http::status::forbidden, "browsers are not served\n");
    }
    if (!websocket::is_upgrade(request)) {
      if (request.method() != http::verb::get) {
        return respond(http::status::method_not_allowed, "GET only\n");
      }
      if (request.target() == "/healthz") return respond(http::status::ok, "OK\n");
      if (!authorised()) return respond(http::status::unauthorized, "wrong or no Api-Key\n");
      if (request.target() == "/metrics") {
        return respond(http::status::ok, metrics_text(shared_));
      }
      return respond(http::status::not_found,
                     "here are /healthz, /metrics and the websocket of a policy\n");
    }
    if (!authorised()) return respond(http::status::unauthorized, "wrong or no Api-Key\n");
    if (shared_.counters.clients >= shared_.options.max_clients) {
      return respond(http::status::service_unavailable,
                     "the server has its " + std::to_string(shared_.options.max_clients) +
                         " clients (max_clients)\n");
    }
    client_ = true;
    ++shared_.counters.clients;
    beast::get_lowest_layer(stream_).expires_never();
    auto timeouts = websocket::stream_base::timeout::suggested(beast::role_type::server);
    timeouts.idle_timeout = websocket::stream_base::none();  // a robot may rest
    stream_.set_option(timeouts);
    stream_.auto_fragment(false);  // a reply is one frame, as openpi's server sends it
    stream_.read_message_max(0);   // on_bytes() says more than a bare 1009 would
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().set_option(tcp::no_delay(true), ignored);
    stream_.async_accept(parser_.get(), [self = shared_from_this()](error_code error) {
      if (error || self->closing_) return;
      self->open_ = true;
      self->write(self->shared_.options.metadata, true, [self] { self->read(); });
    });
  }

  bool authorised() const {
    const std::string& key = shared_.options.api_key;
    if (key.empty()) return true;
    const auto found = parser_.get().find(http::field::authorization);
    if (found == parser_.get().end()) return false;
    const auto value = found->value();
    return equal_secret({value.data(), value.size()}, "Api-Key " + key);
  }

  void respond(http::status status, std::string body) {
    if (status != http::status::ok) ++shared_.counters.refused;
    auto response = std::make_shared<http::response<http::string_body>>(status, 11);
    response->set(http::field::content_type, "text/plain; charset=utf-8");
    response->set(http::field::connection, "close");
    response->body() = std::move(body);
    response->prepare_payload();
    http::async_write(stream_.next_layer(), *response,
                      [self = shared_from_this(), response](error_code, std::size_t) {
                        error_code ignored;
                        beast::get_lowest_layer(self->stream_)
                            .socket()
                            .shutdown(tcp::socket::shutdown_both, ignored);
                      });
  }

  // ---- frames ----
  void read() {
    if (closing_) return;
    stream_.async_read_some(
        in_, shared_.options.max_message + 1,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_bytes(error); });
  }

  void on_bytes(error_code error) {
    if (error) return close_socket();
    if (closing_) return;
    if (in_.size() > shared_.options.max_message) {
      return fail("the message is larger than " + std::to_string(shared_.options.max_message) +
                  " bytes (max_message)");
    }
    if (!stream_.is_message_done()) return read();
    if (stream_.got_text()) return fail("a request is a binary frame, this is a text frame");
    if (busy_) return fail("a request came before the reply to the one before");
    busy_ = waiting_ = true;
    ++number_;
    ++shared_.counters.requests;
    received_ = Clock::now();
    deadline_.expires_after(shared_.options.deadline);
    deadline_.async_wait([self = shared_from_this(), number = number_](error_code cancelled) {
      if (cancelled || self->number_ != number || !self->waiting_ || self->closing_) return;
      ++self->shared_.counters.deadline_misses;
      self->fail("no answer within " + std::to_string(self->shared_.options.deadline.count()) +
                 " ms (deadline_ms)");
    });
    {
      const std::lock_guard lock(shared_.mutex);
      shared_.jobs.push_back(
          {shared_from_this(), number_, std::move(in_), received_, previous_total_ms_});
    }
    in_ = {};
    shared_.changed.notify_one();
    read();
  }

  void write(std::string bytes, bool binary, std::function<void()> then) {
    if (closing_ && binary) return;
    writing_ = true;
    out_ = std::move(bytes);
    stream_.binary(binary);
    write_limit_.expires_after(shared_.options.write_timeout);
    write_limit_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (cancelled || !self->writing_) return;
      ++self->shared_.counters.slow_clients;
      self->close_socket();
    });
    stream_.async_write(asio::buffer(out_), [self = shared_from_this(), then = std::move(then)](
                                                error_code error, std::size_t) {
      self->writing_ = false;
      self->write_limit_.cancel();
      if (error) return self->close_socket();
      then();
    });
  }

  // Says why, then closes with 1011.
  void fail(std::string text) {
    if (closing_) return;
    ++shared_.counters.errors;
    if (writing_) return close_socket();
    closing_ = true;
    deadline_.cancel();
    write(std::move(text), false,
          [self = shared_from_this()] { self->close(websocket::close_code::internal_error, ""); });
  }

  void close(websocket::close_code code, const char* reason) {
    closing_ = true;
    writing_ = true;
    write_limit_.expires_after(shared_.options.write_timeout);
    write_limit_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled) self->close_socket();
    });
    stream_.async_close({code, reason}, [self = shared_from_this()](error_code) {
      self->write_limit_.cancel();
      self->close_socket();
    });
  }

  Shared& shared_;
  websocket::stream<beast::tcp_stream> stream_;
  asio::steady_timer deadline_, write_limit_;
  http::request_parser<http::string_body> parser_;
  beast::flat_buffer buffer_, in_;
  std::string out_;
  bool client_ = false;   // counted as one
  bool open_ = false;     // the handshake is over
  bool busy_ = false;     // from a request to the end of its reply
  bool waiting_ = false;  // from a request to the beginning of its reply
  bool writing_ = false, closing_ = false;
  uint64_t number_ = 0;
  Clock::time_point received_;
  double previous_total_ms_ = -1;
};

tcp::endpoint parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  error_code error;
  unsigned long port = 65536;
  std::string host;
  if (colon != std::string::npos) {
    host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    const std::string digits = text.substr(colon + 1);
    if (!digits.empty() && digits.size() <= 5 &&
        digits.find_first_not_of("0123456789") == std::string::npos) {
      port = std::stoul(digits);
    }
  }
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error || port > 65535) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "listen = '" + text + "' is no address:port, e.g. 127.0.0.1:8000 or [::]:8000");
  }
  return {address, static_cast<uint16_t>(port)};
}

}  // namespace

struct PolicyServer::State {
  Shared shared;
  std::unique_ptr<tcp::acceptor> acceptor;
  std::thread thread;

  void accept() {
    acceptor->async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      const uint64_t limit = shared.options.max_clients + kGuestLimit;
      if (!error && shared.connections.size() < limit) {
        std::make_shared<Connection>(shared, std::move(socket))->start();
      } else if (!error) {
        ++shared.counters.refused;
      }
      accept();
    });
  }
};

PolicyServer::PolicyServer(ServerOptions options, Metrics metrics)
    : state_(std::make_unique<State>()) {
  Shared& shared = state_->shared;
  shared.options = std::move(options);
  shared.metrics = std::move(metrics);
  const tcp::endpoint endpoint = parse_endpoint(shared.options.listen);
  try {
    state_->acceptor = std::make_unique<tcp::acceptor>(shared.io, endpoint, true);
  } catch (const boost::system::system_error& error) {
    throw Error(FRT_ERR_IO, "cannot listen on " + shared.options.listen + ": " +
                                error.code().message() + "; choose another port");
  }
}

PolicyServer::~PolicyServer() = default;

uint16_t PolicyServer::port() const noexcept {
  error_code ignored;
  return state_->acceptor->local_endpoint(ignored).port();
}

const ServerCounters& PolicyServer::counters() const noexcept {
  return state_->shared.counters;
}

void PolicyServer::run(const Handler& handler, const std::function<bool()>& stopped) {
  Shared& shared = state_->shared;
  state_->accept();
  state_->thread = std::thread([&shared] { shared.io.run(); });
  while (!stopped()) {
    Job job;
    {
      std::unique_lock lock(shared.mutex);
      shared.changed.wait_for(lock, std::chrono::milliseconds(100),
                              [&] { return !shared.jobs.empty(); });
      if (shared.jobs.empty()) continue;
      job = std::move(shared.jobs.front());
      shared.jobs.pop_front();
    }
    const double age = milliseconds_since(job.received);
    std::string bytes;
    bool ok = false;
    if (age < static_cast<double>(shared.options.deadline.count())) {  // else nobody waits any more
      try {
        const auto data = job.bytes.cdata();
        bytes = handler(
            {{static_cast<const char*>(data.data()), data.size()}, age, job.previous_total_ms});
        ok = true;
      } catch (const std::exception& error) {
        bytes = error.what();
      }
    }
    // Connections end on their own thread, so the job's reference goes back there in any case.
    asio::post(shared.io, [connection = std::move(job.connection), number = job.number,
                           bytes = std::move(bytes), ok]() mutable {
      if (!bytes.empty()) connection->finish(number, std::move(bytes), ok);
    });
  }
  asio::post(shared.io, [this, &shared] {
    error_code ignored;
    state_->acceptor->close(ignored);
    const std::vector<Connection*> all(shared.connections.begin(), shared.connections.end());
    for (Connection* connection : all) connection->go_away();
    std::deque<Job> left;
    const std::lock_guard lock(shared.mutex);
    left.swap(shared.jobs);
  });
  state_->thread.join();
}

}  // namespace frt::host
