// SPDX-License-Identifier: Apache-2.0
// websocket_connection.hpp - a connection as Beast makes it. Each of its subjects has a file:
//
//   connection.cpp   its life: deadlines, what ends it, and how
//   handshake.cpp    the HTTP request, up to the open websocket
//   messages.cpp     requests and replies, memory, pings
//
// A connection is always in a state that ends: Wait names them. The server's loop calls
// tend() when the earliest deadline is over.
//
// Nothing is sent into something half written: then the connection just ends.
//
// One write is in flight at most. An error while a write is in flight means that the client does
// not read: the socket is closed at once.
//
// Every completion handler is made by then(): it keeps the connection alive, and what throws in it
// ends the connection. An operation that the library loses because there is no memory for it takes
// its hold on the connection along, or leaves it to the deadlines.
#pragma once

#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "net/deadlines.hpp"
#include "robot/service/admission.hpp"
#include "robot/service/connection.hpp"
#include "robot/service/watched_socket.hpp"

namespace frt::host {

// What a connection can wait for.
enum class Wait {
  kHandshake,  // from the accept until the websocket is open
  kReceive,    // from a message's first byte to its last
  kReply,      // from a request's last byte until the answer is there
  kWrite,      // while something is written or the close is under way
  kSilence,    // since the client's last sign of life
  kRetry,      // until memory is asked for again
  kCount
};

class WebsocketConnection final : public Connection {
 public:
  using error_code = boost::system::error_code;
  using Socket = boost::asio::ip::tcp::socket;
  using CloseCode = boost::beast::websocket::close_code;

  WebsocketConnection(ServerContext& context, Socket socket,
                      const boost::asio::ip::address& address);
  ~WebsocketConnection() override;

  // Reads the request; the deadline of the handshake begins.
  void begin();

  bool has_socket() const noexcept override { return stream_.next_layer().is_open(); }
  ServerClock::time_point due() const noexcept override { return deadlines_.due(); }
  uint64_t unfinished() const noexcept override {
    return receiving_ && !dropped_ ? in_.capacity() : 0;
  }
  ServerClock::time_point idle_since() const noexcept override {
    return receiving_ || busy_ ? ServerClock::time_point::max() : idle_since_;
  }
  bool is_releasing() const noexcept override { return dropped_ && in_.capacity() > 0; }

  void tend(ServerClock::time_point now) noexcept override;
  void finish(Answer answer) noexcept override;
  void drop_for_memory() noexcept override;
  void displace() noexcept override;
  void give_place() noexcept override;
  void go_away() noexcept override;

 private:
  const ServerOptions& options() const { return context_.options; }
  WatchedSocket& socket() { return stream_.next_layer(); }

  // ---- what throws ----
  template <class Body>
  void guarded(Body&& body) noexcept {
    try {
      body();
    } catch (const std::bad_alloc&) {
      ++context_.counters.out_of_memory;
      drop("the server is out of memory", CloseCode::try_again_later);
    } catch (...) {
      ++context_.counters.errors;
      drop("the server failed", CloseCode::internal_error);
    }
  }
  template <class Body>
  auto then(Body body) {
    return [this, self = shared_from_this(), body = std::move(body)](
               error_code error, std::size_t bytes = 0) { guarded([&] { body(error, bytes); }); };
  }

  // Until memory is asked for, or a read is cancelled, once more.
  static constexpr std::chrono::milliseconds kRetryInterval{2};

  // ---- connection.cpp ----
  void set_deadline(Wait which, std::chrono::milliseconds from_now) noexcept;
  void on_deadline(Wait which);
  // What has arrived is given up, and the place among the clients, too.
  void stop_receiving() noexcept;
  // For want of memory nothing but the socket itself is used: the reason goes out if there is room
  // for it in the socket, and what the client still sends is read away for a while, as closing
  // before that would take the reason from it.
  void drop(std::string_view text, CloseCode code) noexcept;
  void drain() noexcept;
  void drain_on() noexcept;
  void send_raw(std::string_view bytes) noexcept;
  // The same for a request that got no answer yet.
  void answer_raw(std::string_view response) noexcept;
  void close_socket() noexcept;

  // ---- handshake.cpp ----
  void set_socket_options();
  void on_request(error_code error);
  void respond(HttpAnswer answer);
  void upgrade();

  // ---- messages.cpp ----
  void note_sign_of_life() noexcept;
  void on_silence();
  void read();
  void on_bytes(error_code error, std::size_t bytes);
  // Puts what was read to the rest of the message, and goes on: to the handler, or reads more.
  void advance();
  // False: not now. Either this connection waits until another one has given memory back, or it was
  // closed because there is nothing to wait for.
  bool make_room(uint64_t bytes);
  void retry();
  void submit();
  void write_bytes(boost::asio::const_buffer bytes, void (WebsocketConnection::*next)());
  void after_reply();
  // Says why, then closes with 1011.
  void fail(std::string text);
  void after_error();
  void close(CloseCode code, const char* reason);

  ServerContext& context_;
  boost::beast::websocket::stream<WatchedSocket> stream_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  boost::beast::flat_buffer head_{kHeaderLimit};
  // The first bytes of a message are read into `first_`, so a connection that rests holds no
  // buffer; the rest goes straight to where the message is gathered.
  std::array<char, 4096> first_;
  std::size_t fresh_ = 0;  // of first_, not yet in in_
  MessageBuffer in_;
  std::string out_;
  uint64_t reply_bytes_ = 0;  // counted for out_
  Deadlines<Wait> deadlines_;
  bool leaving_ = false;    // the server stops: closed behind what is being written
  bool answered_ = false;   // the answer to the request has begun
  bool open_ = false;       // the handshake is over
  bool receiving_ = false;  // a message has begun
  bool busy_ = false;       // from a request to the end of its reply
  bool waiting_ = false;    // from a request to the beginning of its reply
  bool reading_ = false, writing_ = false, closing_ = false, dropped_ = false;
  std::shared_ptr<Connection> waits_;  // itself, while it waits for memory
  bool pinged_ = false;                // since the last sign of life
  bool pinging_ = false;               // a ping is being written
  uint64_t number_ = 0;
  ServerClock::time_point received_;    // the last request
  ServerClock::time_point idle_since_;  // the last reply's end, or the upgrade
  double previous_total_ms_ = -1;
};

}  // namespace frt::host
