// SPDX-License-Identifier: Apache-2.0
// server.hpp - HTTP/1.1: connections, deadlines, memory, streams. It knows no route.
//
//   requests   one after the other on a connection, pipelined ones too; one is answered at a time.
//              Content-Length or chunked bodies; both at once, or a malformed head, is a 400.
//   answers    whole, or streamed with chunks; streams are flushed with each write.
//   time       a head, a body, an idle connection and a write that makes no progress have limits.
//   files      a body of any length may go to a sink of the service (body_sink.hpp), at its pace.
//   memory     bodies of all connections count against one budget before they are allocated. What
//              waits for a slow client of a stream is limited; beyond that the client is cut off.
//   TLS        where there is a certificate, and then nothing else; a handshake has a head's time.
//   number     connections are limited. One too many, or none of the process's descriptors left,
//              costs the oldest connection that waits for a request, of the address with the most
//              of those. A body on its way to a sink costs nobody: the service bounds their number,
//              body_timeout their silence.
//   leaving    a client that closes, or shuts down its sending half, before its answer is complete
//              has left; its exchange is told at once.
//   failure    an exception ends one connection, never the server.
//
// One thread of its own does all of it. Every refusal is counted.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "http/exchange.hpp"
#include "http/request.hpp"
#include "net/tls_context.hpp"

namespace frt::host {

struct HttpOptions {
  std::string listen = "127.0.0.1:8080";  // address:port or unix:PATH; port 0: any that is free
  uint64_t max_body = uint64_t{16} << 20;
  uint32_t max_head = 16 << 10;
  uint64_t buffer_memory = uint64_t{128} << 20;  // of all bodies; at least max_body
  uint64_t stream_buffer = uint64_t{1} << 20;    // bytes that may wait for one client of a stream
  uint32_t max_connections = 256;
  std::chrono::milliseconds head_timeout{10000};  // from a request's first byte, or the accept
  // From the head to the body's last byte, and again behind each max_body bytes that a sink took.
  std::chrono::milliseconds body_timeout{60000};
  std::chrono::milliseconds idle_timeout{60000};   // between requests
  std::chrono::milliseconds write_timeout{30000};  // without progress
  std::chrono::milliseconds heartbeat{10000};      // of silence in a stream

  std::shared_ptr<const TlsContext> tls{};  // null: in plain

  // Throws FRT_ERR_INVALID_ARGUMENT for limits that contradict each other.
  void check() const;
};

// Why a request or a connection was refused or ended, as the label of a counter.
enum class HttpRefusal {
  kMalformed,
  kHeadTooLarge,
  kBodyTooLarge,
  kHeadTimeout,
  kBodyTimeout,
  kWriteTimeout,
  kSlowClient,  // a stream's buffer was full
  kMemory,
  kConnections,
  kDescriptors,
  kDisplaced,
  kDraining,
  kTlsHandshake,  // garbage, or nothing in common
  kTlsHandshakeTimeout,
  kTlsProtocol,  // behind the handshake; a renegotiation, too
  kPlainHttp,    // where TLS is spoken
  kCount
};
const char* refusal_name(HttpRefusal refusal) noexcept;  // "head_too_large"

struct HttpCounters {
  std::atomic<uint64_t> connections{0}, requests{0}, disconnects{0}, failures{0},
      accept_failures{0}, tls_handshakes{0};
  std::atomic<uint64_t> bytes_in{0}, bytes_out{0};
  std::atomic<uint64_t> open{0}, streams{0};  // now
  std::array<std::atomic<uint64_t>, static_cast<std::size_t>(HttpRefusal::kCount)> refusals{};
};

// What became of a request.
struct HttpOutcome {
  const HttpRequest& request;
  int status = 0;  // 0: the client left before an answer began
  uint64_t bytes_out = 0;
  double seconds = 0;  // from the head to the answer's last byte
  bool complete = false;
  const char* ending = "";  // "complete", "client left", "slow client", ...
};

// What a server serves. All calls come on the server's thread and must return quickly.
class HttpService {
 public:
  virtual ~HttpService() = default;
  // A head has come. An answer here refuses the request before its body is read. May set what
  // HttpRequest leaves to it, a sink for its body, too.
  virtual std::optional<HttpResponse> admit(HttpRequest& head) = 0;
  // A complete request.
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // Headers that the answer to `request` has, whatever it is.
  virtual HttpHeaders standard_headers(const HttpRequest& request) = 0;
  // The answer to what the server itself refuses, or that nobody answered; `text` says why. Of a
  // head that is not complete `request` has what is known, perhaps nothing. A 503 has Retry-After.
  virtual HttpResponse error_response(const HttpRequest& request, int status,
                                      const std::string& text) = 0;
  virtual void finished(const HttpOutcome& outcome) noexcept = 0;
};

class HttpServer {
 public:
  // Binds and listens, and serves from now on. `service` outlives it. Throws what
  // HttpOptions::check() and parse_listen() throw, FRT_ERR_IO if the address is taken.  [setup]
  HttpServer(HttpOptions options, HttpService& service);
  ~HttpServer();  // ends what is under way
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const noexcept;  // 0 for a UNIX socket
  const HttpCounters& counters() const noexcept;
  // Bytes that bodies hold now.
  uint64_t buffered() const noexcept;
  // Accepts nothing more, closes idle connections, and returns when the last answer is complete or
  // `patience` is over. False: something is left, which a later drain() may wait for, and the
  // destructor cuts off.
  bool drain(std::chrono::milliseconds patience);
  // Another certificate for connections from now on. Not null, and not of a server in plain.  [any]
  void set_tls(std::shared_ptr<const TlsContext> tls);
  // Null: in plain.  [any]
  std::shared_ptr<const TlsContext> tls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace frt::host
