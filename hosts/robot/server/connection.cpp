// SPDX-License-Identifier: Apache-2.0
// Beast is in this file only.
//
// A connection is always in a state that ends: kHandshake from the accept until the websocket is
// open, kReceive from a message's first byte to its last, kReply until the answer is there, kWrite
// while something is written or the close is under way, kSilence at all other times. The server's
// loop calls tend() when the earliest of these deadlines is over; there are no timers.
//
// The first bytes of a message are read into `first_`, so a connection that rests holds no buffer;
// the rest goes straight to where the message is gathered. Before that grows, it counts against the
// budget; where the budget is used up, the connection tries again (kRetry) until another one has
// given something back.
//
// One write is in flight at most. An error while a write is in flight means that the client does
// not read: the socket is closed at once.
//
// Every completion handler is made by then(): it keeps the connection alive, and what throws in it
// ends the connection. An operation that the library loses because there is no memory for it takes
// its hold on the connection along, or leaves it to the deadlines.
#include "robot/server/connection.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <cstring>
#include <frt/error.hpp>
#include <new>
#include <optional>
#include <utility>

#include "robot/wire/shown.hpp"

namespace frt::host {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = ServerClock;

constexpr uint32_t kHeaderLimit = 16 << 10;
constexpr uint64_t kLeastRead = uint64_t{16} << 10;
constexpr std::string_view kDisplaced =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
    "a newer connection needed the place before this one was a client (max_connections)\n";
constexpr std::string_view kTimedOut =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"
    "no complete request within handshake_timeout_ms\n";
constexpr std::chrono::milliseconds kRetryInterval{2};  // of waiting for memory
// A peer whose machine is gone is noticed after about a minute, even if it is never written to.
constexpr int kKeepaliveIdle = 30, kKeepaliveInterval = 10, kKeepaliveProbes = 3;

// What was read is no HTTP, as opposed to: nothing more can be read.
bool is_malformed(const error_code& error) {
  return error && error != http::error::end_of_stream && error != http::error::partial_message &&
         error.category() == http::make_error_code(http::error::end_of_stream).category();
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

// A text frame and a close frame of a server, without allocating; `text` is cut to 125 bytes.
class Farewell {
 public:
  Farewell(std::string_view text, uint16_t code) {
    text = text.substr(0, 125);
    put(0x81);
    put(static_cast<unsigned char>(text.size()));
    std::memcpy(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
    put(0x88);
    put(2);
    put(static_cast<unsigned char>(code >> 8));
    put(static_cast<unsigned char>(code & 0xff));
  }
  std::string_view bytes() const { return {bytes_.data(), size_}; }

 private:
  void put(unsigned char byte) { bytes_[size_++] = static_cast<char>(byte); }
  std::array<char, 160> bytes_{};
  std::size_t size_ = 0;
};

class WebsocketConnection final : public Connection {
  // ---- what throws ----
  template <class Body>
  void guarded(Body&& body) noexcept {
    try {
      body();
    } catch (const std::bad_alloc&) {
      ++context_.counters.out_of_memory;
      drop("the server is out of memory", websocket::close_code::try_again_later);
    } catch (...) {
      ++context_.counters.errors;
      drop("the server failed", websocket::close_code::internal_error);
    }
  }
  template <class Body>
  auto then(Body body) {
    return [this, self = shared_from_this(), body = std::move(body)](
               error_code error, std::size_t bytes = 0) { guarded([&] { body(error, bytes); }); };
  }

 public:
  WebsocketConnection(ServerContext& context, tcp::socket socket, const asio::ip::address& address)
      : Connection(++context.next_id, address),
        context_(context),
        stream_(std::move(socket)),
        in_(context.memory) {
    context_.connections.add(*this);
    ++context_.counters.connections;
  }
  ~WebsocketConnection() override {
    close_socket();
    context_.memory.give(reply_bytes_);
    context_.connections.remove(*this);
  }

  void begin() {
    set_socket_options();
    set_deadline(kHandshake, options().handshake_timeout);
    parser_.emplace();
    parser_->header_limit(kHeaderLimit);
    http::async_read(stream_.next_layer(), head_, *parser_,
                     then([this](error_code error, std::size_t) { on_request(error); }));
  }

  bool has_socket() const noexcept override { return stream_.next_layer().is_open(); }
  Clock::time_point due() const noexcept override { return due_; }
  uint64_t unfinished() const noexcept override {
    return receiving_ && !dropped_ ? in_.capacity() : 0;
  }
  bool is_releasing() const noexcept override { return dropped_ && in_.capacity() > 0; }

  void finish(Answer answer) noexcept override {
    guarded([&] {
      if (answer.number != number_ || !waiting_ || closing_ || answer.expired) return;
      waiting_ = false;
      clear_deadline(kReply);
      if (answer.request.capacity() <= context_.share() / 4) {
        in_ = std::move(answer.request);
        in_.clear();
      }
      if (answer.bytes.empty()) throw std::bad_alloc();
      if (!answer.ok) return fail(std::move(answer.bytes));
      write(std::move(answer.bytes), [this] {
        ++context_.counters.replies;
        busy_ = false;
        previous_total_ms_ = milliseconds_since(received_);
      });
    });
  }

  void tend(Clock::time_point now) noexcept override {
    guarded([&] {
      for (int i = 0; i < kDeadlines; ++i) {
        if (until_[static_cast<std::size_t>(i)] <= now) {
          until_[static_cast<std::size_t>(i)] = Clock::time_point::max();
          on_deadline(static_cast<Deadline>(i));
        }
      }
      update_due();
    });
  }

  void drop_for_memory() noexcept override {
    ++context_.counters.out_of_memory;
    drop("the server's buffers are full and this message is the largest (buffer_memory)",
         websocket::close_code::try_again_later);
  }

  void displace() noexcept override {
    ++context_.counters.displaced;
    if (!open_) say_raw(kDisplaced);
    close_socket();
  }

  void go_away() noexcept override {
    guarded([&] {
      if (!open_ || writing_ || closing_) return close_socket();
      close(websocket::close_code::going_away, "the server stops");
    });
  }

 private:
  enum Deadline { kHandshake, kReceive, kReply, kWrite, kSilence, kRetry, kDeadlines };

  const ServerOptions& options() const { return context_.options; }
  tcp::socket& socket() { return stream_.next_layer(); }

  // ---- what is over ----
  void update_due() noexcept {
    due_ = *std::min_element(until_.begin(), until_.end());
    context_.note_due(due_);
  }
  void set_deadline(Deadline which, std::chrono::milliseconds from_now) noexcept {
    until_[which] = Clock::now() + from_now;
    update_due();
  }
  void clear_deadline(Deadline which) noexcept {
    until_[which] = Clock::time_point::max();
    update_due();
  }

  void on_deadline(Deadline which) {
    ServerCounters& counters = context_.counters;
    const auto over = [](std::chrono::milliseconds limit, const char* option) {
      return " within " + std::to_string(limit.count()) + " ms (" + option + ")";
    };
    switch (which) {
      case kHandshake:
        ++counters.handshake_timeouts;
        say_raw(kTimedOut);
        return close_socket();
      case kReceive:
        ++counters.receive_timeouts;
        return fail("the message was not complete" +
                    over(options().receive_timeout, "receive_timeout_ms"));
      case kReply:
        ++counters.deadline_misses;
        return fail("no answer" + over(options().deadline, "deadline_ms"));
      case kWrite:
        if (writing_) ++counters.slow_clients;
        return close_socket();
      case kSilence:
        return on_silence();
      case kRetry:
        return retry();
      case kDeadlines:
        break;
    }
  }

  // ---- HTTP ----
  void set_socket_options() {
    error_code ignored;
    socket().set_option(tcp::no_delay(true), ignored);
    socket().set_option(asio::socket_base::keep_alive(true), ignored);
    const auto seconds = [&](int name, int value) {
      setsockopt(socket().native_handle(), IPPROTO_TCP, name, &value, sizeof(value));
    };
    seconds(TCP_KEEPIDLE, kKeepaliveIdle);
    seconds(TCP_KEEPINTVL, kKeepaliveInterval);
    seconds(TCP_KEEPCNT, kKeepaliveProbes);
  }

  void on_request(error_code error) {
    if (closing_) return;
    if (error == http::error::header_limit) {
      return respond(
          http::status::request_header_fields_too_large,
          "the head of a request has at most " + std::to_string(kHeaderLimit) + " bytes\n");
    }
    if (is_malformed(error)) {
      return respond(http::status::bad_request, "this is no request that is served here\n");
    }
    if (error) return close_socket();
    const auto& request = parser_->get();
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
        return respond(http::status::ok, metrics_text(context_));
      }
      return respond(http::status::not_found,
                     "here are /healthz, /metrics and the websocket of a policy\n");
    }
    if (!authorised()) return respond(http::status::unauthorized, "wrong or no Api-Key\n");
    if (context_.counters.clients >= options().max_clients) {
      return respond(http::status::service_unavailable, "the server has its " +
                                                            std::to_string(options().max_clients) +
                                                            " clients (max_clients)\n");
    }
    const uint32_t each = options().max_clients_per_address;
    if (each > 0 && context_.connections.clients_of(address()) >= each) {
      return respond(
          http::status::service_unavailable,
          "your address has its " + std::to_string(each) + " clients (max_clients_per_address)\n");
    }
    upgrade();
  }

  bool authorised() const {
    const std::string& key = options().api_key;
    if (key.empty()) return true;
    const auto found = parser_->get().find(http::field::authorization);
    if (found == parser_->get().end()) return false;
    const auto value = found->value();
    return equal_secret({value.data(), value.size()}, "Api-Key " + key);
  }

  void respond(http::status status, std::string body) {
    if (status != http::status::ok) ++context_.counters.refused;
    auto response = std::make_shared<http::response<http::string_body>>(status, 11);
    response->set(http::field::content_type, "text/plain; charset=utf-8");
    response->set(http::field::connection, "close");
    if (status == http::status::service_unavailable) response->set(http::field::retry_after, "1");
    response->body() = std::move(body);
    response->prepare_payload();
    http::async_write(socket(), *response, then([this, response](error_code error, std::size_t) {
                        if (error) return close_socket();
                        stop_receiving();
                        drain();
                      }));
  }

  // ---- websocket ----
  void upgrade() {
    client_ = true;
    ++context_.counters.clients;
    // The deadlines are this file's own.
    stream_.set_option(websocket::stream_base::timeout{websocket::stream_base::none(),
                                                       websocket::stream_base::none(), false});
    stream_.auto_fragment(false);  // a reply is one frame, as openpi's server sends it
    stream_.read_message_max(0);   // on_bytes() says more than a bare 1009 would
    stream_.control_callback(
        [this](websocket::frame_type, beast::string_view) { note_sign_of_life(); });
    stream_.async_accept(parser_->get(), then([this](error_code error, std::size_t) {
                           if (closing_) return;
                           if (error) return close_socket();
                           open_ = true;
                           parser_.reset();
                           head_ = {};
                           clear_deadline(kHandshake);
                           note_sign_of_life();
                           stream_.binary(true);
                           write_bytes(asio::buffer(options().metadata), [this] { read(); });
                         }));
  }

  void note_sign_of_life() noexcept {
    pinged_ = false;
    if (options().ping_interval.count() > 0 && !closing_) {
      set_deadline(kSilence, options().ping_interval);
    }
  }

  void on_silence() {
    if (pinged_) {
      ++context_.counters.silent;
      return drop("no sign of life, not even an answer to a ping (ping_ms)",
                  websocket::close_code::going_away);
    }
    note_sign_of_life();
    pinged_ = true;
    if (pinging_) return;  // the last ping still waits for room in the socket
    stream_.async_ping({}, then([this](error_code, std::size_t) { pinging_ = false; }));
    pinging_ = true;
  }

  void read() {
    if (closing_) return;
    asio::mutable_buffer into = asio::buffer(first_);
    if (receiving_) {
      const uint64_t room = std::min(in_.capacity(), options().max_message + 1) - in_.size();
      into = asio::buffer(in_.end(), room);
    }
    stream_.async_read_some(into, then([this](error_code error, std::size_t bytes) {
                              reading_ = false;
                              on_bytes(error, bytes);
                            }));
    reading_ = true;
  }

  void on_bytes(error_code error, std::size_t bytes) {
    if (closing_) {
      in_.release();
      if (dropped_) drain();
      return;
    }
    if (error) return close_socket();
    note_sign_of_life();
    if (busy_) return fail("a request came before the reply to the one before");
    if (stream_.got_text()) return fail("a request is a binary frame, this is a text frame");
    if (receiving_) {
      in_.grow(bytes);
    } else {
      receiving_ = true;
      fresh_ = bytes;
      set_deadline(kReceive, options().receive_timeout);
    }
    advance();
  }

  // Puts what was read to the rest of the message, and goes on: to the handler, or reads more.
  void advance() {
    if (in_.size() + fresh_ > options().max_message) {
      return fail("the message is larger than " + std::to_string(options().max_message) +
                  " bytes (max_message)");
    }
    if (!make_room(in_.size() + fresh_)) return;
    in_.append(first_.data(), fresh_);
    fresh_ = 0;
    if (stream_.is_message_done()) return submit();
    const uint64_t next = std::min(in_.size() + kLeastRead, options().max_message + 1);
    if (in_.size() == in_.capacity() && !make_room(next)) return;
    read();
  }

  // False: not now. Either this connection waits until another one has given memory back, or it was
  // closed because there is nothing to wait for.
  bool make_room(uint64_t bytes) {
    if (in_.reserve(bytes, options().max_message + 1)) return true;
    const auto& all = context_.connections.all();
    const bool coming =
        std::ranges::any_of(all, [](const Connection* c) { return c->is_releasing(); });
    Connection* largest = context_.connections.largest_unfinished();
    if (!coming && largest && largest != this && largest->unfinished() > in_.capacity()) {
      largest->drop_for_memory();
    } else if (!coming && bytes > context_.share()) {
      drop_for_memory();
      return false;
    }
    waits_ = shared_from_this();           // no operation of its own is under way
    set_deadline(kRetry, kRetryInterval);  // requests under way and replies end, too
    return false;
  }

  void retry() {
    waits_.reset();
    if (!closing_) return advance();
    if (!dropped_ || !reading_) return;
    error_code ignored;
    socket().cancel(ignored);  // the read was between two operations when it was cancelled
    set_deadline(kRetry, kRetryInterval);
  }

  void submit() {
    busy_ = waiting_ = true;
    receiving_ = false;
    clear_deadline(kReceive);
    ++number_;
    ++context_.counters.requests;
    received_ = Clock::now();
    set_deadline(kReply, options().deadline);
    context_.exchange.push(Job{id(), number_, std::move(in_), received_, previous_total_ms_});
    read();
  }

  // ---- writing and ending ----
  template <class Then>
  void write(std::string bytes, Then next) {
    if (closing_) return;
    out_ = std::move(bytes);
    reply_bytes_ = out_.capacity();
    context_.memory.add(reply_bytes_);
    stream_.binary(true);
    write_bytes(asio::buffer(out_), std::move(next));
  }

  template <class Then>
  void write_bytes(asio::const_buffer bytes, Then next) {
    set_deadline(kWrite, options().write_timeout);
    stream_.async_write(bytes, then([this, next](error_code error, std::size_t) {
                          writing_ = false;
                          clear_deadline(kWrite);
                          context_.memory.give(std::exchange(reply_bytes_, 0));
                          out_ = {};
                          if (error) return close_socket();
                          next();
                        }));
    writing_ = true;
  }

  // Says why, then closes with 1011.
  void fail(std::string text) {
    if (closing_) return;
    ++context_.counters.errors;
    if (writing_) return close_socket();
    out_ = shown(text, kShownError);
    stop_receiving();
    stream_.binary(false);
    write_bytes(asio::buffer(out_), [this] { close(websocket::close_code::internal_error, ""); });
  }

  void close(websocket::close_code code, const char* reason) {
    stop_receiving();
    set_deadline(kWrite, options().write_timeout);
    stream_.async_close({code, reason}, then([this](error_code, std::size_t) { close_socket(); }));
  }

  // What has arrived is given up, and the place among the clients, too.
  void stop_receiving() noexcept {
    closing_ = true;
    if (std::exchange(client_, false)) --context_.counters.clients;
    for (const Deadline which : {kHandshake, kReceive, kReply, kSilence, kRetry}) {
      until_[which] = Clock::time_point::max();
    }
    if (waits_) until_[kRetry] = Clock::time_point::min();  // lets go of it
    update_due();
    if (waiting_) context_.exchange.withdraw(id());
    if (!reading_) in_.release();  // else the read holds it; on_bytes() releases it
  }

  // For want of memory nothing but the socket itself is used: the reason goes out if there is room
  // for it in the socket, and what the client still sends is read away for a while, as closing
  // before that would take the reason from it.
  void drop(std::string_view text, websocket::close_code code) noexcept {
    if (dropped_ || !has_socket()) return close_socket();
    if (open_ && !writing_ && !closing_) say_raw(Farewell(text, code).bytes());
    dropped_ = true;
    stop_receiving();
    set_deadline(kWrite, options().write_timeout);
    error_code ignored;
    if (!reading_ && !writing_) return drain();
    socket().cancel(ignored);
    set_deadline(kRetry, kRetryInterval);
  }

  void drain() noexcept {
    set_deadline(kWrite, options().write_timeout);
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (ignored) return close_socket();
    drain_on();
  }
  void drain_on() noexcept {
    try {
      socket().async_read_some(asio::buffer(context_.discarded),
                               then([this](error_code error, std::size_t) {
                                 if (error) return close_socket();
                                 drain_on();
                               }));
    } catch (...) {
      close_socket();
    }
  }

  void say_raw(std::string_view bytes) noexcept {
    (void)!::send(socket().native_handle(), bytes.data(), bytes.size(),
                  MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void close_socket() noexcept {
    stop_receiving();
    clear_deadline(kWrite);
    error_code ignored;
    socket().close(ignored);
  }

  ServerContext& context_;
  websocket::stream<tcp::socket> stream_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  beast::flat_buffer head_{kHeaderLimit};
  std::array<char, 4096> first_;
  std::size_t fresh_ = 0;  // of first_, not yet in in_
  MessageBuffer in_;
  std::string out_;
  uint64_t reply_bytes_ = 0;  // counted for out_
  std::array<Clock::time_point, kDeadlines> until_ = [] {
    std::array<Clock::time_point, kDeadlines> none;
    none.fill(Clock::time_point::max());
    return none;
  }();
  Clock::time_point due_ = Clock::time_point::max();
  bool open_ = false;       // the handshake is over
  bool receiving_ = false;  // a message has begun
  bool busy_ = false;       // from a request to the end of its reply
  bool waiting_ = false;    // from a request to the beginning of its reply
  bool reading_ = false, writing_ = false, closing_ = false, dropped_ = false;
  std::shared_ptr<Connection> waits_;  // itself, while it waits for memory
  bool pinged_ = false;                // since the last sign of life
  bool pinging_ = false;               // a ping is being written
  uint64_t number_ = 0;
  Clock::time_point received_;
  double previous_total_ms_ = -1;
};

}  // namespace

void Connection::start(ServerContext& context, tcp::socket socket,
                       const asio::ip::address& address) {
  std::make_shared<WebsocketConnection>(context, std::move(socket), address)->begin();
}

}  // namespace frt::host
