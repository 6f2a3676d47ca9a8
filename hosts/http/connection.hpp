// SPDX-License-Identifier: Apache-2.0
// connection.hpp - one connection of an HttpServer: reads requests one after the other, sends the
// answers. All of it happens on the server's thread.
//
// A read is always under way, unless its buffer is full: so a client that leaves is noticed while
// its answer is being made, and the next request of a pipeline waits in the buffer. Where that is
// full, the system is asked now and then whether the client has left.
//
// Every state ends: HttpWait names what a connection can wait for. Every completion handler keeps
// the connection alive, and what throws in it ends the connection.
#pragma once

#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "http/exchange_queue.hpp"
#include "http/server.hpp"
#include "net/address.hpp"
#include "net/deadlines.hpp"
#include "net/stream_socket.hpp"

namespace frt::host {

enum class HttpWait {
  kHandshake,   // of TLS
  kIdle,        // for a request's first byte
  kHead,        // for the rest of its head
  kBody,        // for the rest of its body
  kWrite,       // for progress of a write
  kHeartbeat,   // until a silent stream is told so
  kLinger,      // for the client to close
  kFullBuffer,  // until a client from which nothing is read is looked after
  kCount
};

// What connections share with their server.
struct HttpShared {
  HttpShared(HttpOptions given, HttpService& served)
      : options(std::move(given)),
        service(served),
        queue(std::make_shared<ExchangeQueue>(io, options.buffer_memory)) {}

  void note_due(ServerClock::time_point due) noexcept {
    if (due < next_due) next_due = due;
  }
  void count(HttpRefusal refusal) noexcept {
    ++counters.refusals[static_cast<std::size_t>(refusal)];
  }

  const HttpOptions options;
  HttpService& service;
  HttpCounters counters;
  std::vector<HttpConnection*> connections;  // in order of arrival
  ServerClock::time_point next_due = ServerClock::time_point::max();
  bool draining = false;
  char scratch[16384];            // a part of a body, on its way from the parser to the request
  boost::asio::io_context io{1};  // goes before what its operations hold
  const std::shared_ptr<ExchangeQueue> queue;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = StreamSocket::Socket;

  // Null `tls`: in plain.
  HttpConnection(HttpShared& shared, Socket socket, const boost::asio::ip::address& address,
                 bool is_unix, const std::shared_ptr<const TlsContext>& tls);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void start();
  // The exchange has something to send.
  void send_output(Exchange& exchange);
  // Nobody will answer the request.
  void abandoned();
  // The sink of the body that is being read has room again, or refuses it.
  void sink_woke();
  void tend(ServerClock::time_point now) noexcept;
  // Gives its place to a newer connection.
  void displace() noexcept;
  // The server stops: closes at once if nothing is under way, else behind the answer.
  void drain() noexcept;
  void cut() noexcept { close("server stopped"); }

  const boost::asio::ip::address& address() const noexcept { return address_; }
  bool is_open() const noexcept { return socket_.is_open(); }
  bool is_busy() const noexcept { return busy_; }  // a request is complete, its answer is not
  // The body of a request goes to a sink.
  bool is_uploading() const noexcept { return request_ && request_->sink; }
  ServerClock::time_point due() const noexcept { return deadlines_.due(); }

 private:
  using error_code = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

  template <class Body>
  void guarded(Body&& body) noexcept;
  void set_deadline(HttpWait wait, std::chrono::milliseconds from_now) noexcept;
  void on_deadline(HttpWait wait);

  // ---- TLS ----
  void on_handshake(error_code error);
  void read_away();

  // ---- requests ----
  void begin_requests();
  void read();
  void on_read(error_code error, std::size_t bytes);
  void parse();
  // False: the request was refused.
  bool on_head();
  bool append_body(std::size_t bytes);
  bool append_to_sink(BodySink& sink, std::size_t bytes);
  void submit();
  void refuse(HttpRefusal refusal, int status, const char* text);
  void refuse_large_body();
  void end_early(const HttpResponse& response);

  // ---- answers ----
  void answer(const HttpResponse& response);
  void put_head(const HttpResponse& response, bool whole);
  void put_chunk(std::string_view bytes);
  void write();
  void write_on(std::size_t offset);
  void after_write();
  void finish(const char* ending) noexcept;
  void next_request();
  void linger();
  void close(const char* ending) noexcept;

  HttpShared& shared_;
  StreamSocket socket_;
  const boost::asio::ip::address address_;
  const std::string shown_address_;
  Deadlines<HttpWait> deadlines_;

  std::array<char, 16 << 10> arrived_;  // of the read under way: in_ may move meanwhile
  boost::beast::flat_buffer in_;
  std::optional<Parser> parser_;
  std::shared_ptr<HttpRequest> request_;
  uint64_t body_room_ = 0;  // of the budget, for the body that is being read
  uint64_t sink_bytes_ = 0, sink_bytes_in_time_ = 0;  // of it: all, and by this deadline
  bool sink_full_ = false;
  std::weak_ptr<Exchange> exchange_;
  ServerClock::time_point head_time_;

  std::string out_, next_;                       // being written; to be written then
  uint64_t payload_out_ = 0, payload_next_ = 0;  // bytes of the stream in them
  int status_ = 0;
  uint64_t answer_bytes_ = 0;
  bool reading_ = false, writing_ = false;
  // Itself, while its buffer or its sink is full and nothing reads: the answer under way needs it,
  // and its deadline notices a client that has left.
  std::shared_ptr<HttpConnection> stalled_;
  bool head_done_ = false;
  bool busy_ = false;
  bool answered_ = false;                // all of the answer is in out_ or next_
  std::optional<uint64_t> length_left_;  // of a stream that said how long it is
  bool chunked_ = false, body_allowed_ = true, keep_alive_ = false;
  bool streaming_ = false;
  bool lingering_ = false;
  bool tls_failed_ = false;  // what still comes is dropped unread
};

}  // namespace frt::host
