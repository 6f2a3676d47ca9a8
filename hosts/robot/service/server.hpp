// SPDX-License-Identifier: Apache-2.0
// server.hpp - the websocket side of the openpi protocol: connections, frames, deadlines. What an
// inference is, it does not know.
//
//   GET /healthz            200 "OK"; GET /metrics: counters as Prometheus text
//   upgrade, any path       `Authorization: Api-Key KEY` where a key is set; then metadata is sent,
//                           and each binary frame of the client gets one binary frame back
//   error                   one text frame with the reason, then close 1011
//
// The promise to a robot that waits: each request is answered or its connection closed before the
// deadline is over, whatever happens to the inference and whatever other clients do:
//
//   time       a handshake, a message, a reply, a write and a close each have a limit. A silent
//              client is pinged, and closed if it stays silent: an idle robot answers pings.
//   memory     received messages of all connections count against one budget, before they are
//              allocated. Where the budget is used up, the connection with the largest unfinished
//              message is closed; a client within its share never is. A reply counts from when the
//              handler has made it until it is sent: it is never refused, and takes room from
//              messages. So the sum exceeds the budget by at most one reply per client. What is
//              small does not count: heads and answers of HTTP (16 KiB, and the metrics), error
//              texts (1 KB). The metadata is one string for all.
//   number     clients, clients of one address, and connections are limited. A client too many gets
//              the place of one that has long asked nothing, or 503 and the reason. A connection
//              too many, or out of file descriptors, costs the oldest connection that is no client
//              yet, of the address with the most of those.
//   failure    an exception, out of memory included, ends one connection, never the server.
//
// Requests of several clients are served in their order of arrival; each client may have one in
// flight. Pings are answered at any time. Every limit has a counter in /metrics, which also tells
// how long requests wait, are computed and take in all.
//
// The request log has one JSON object a line, without observations and actions:
//   {"time": "2026-11-27T12:00:00.000Z", "event": "request", "client": 3, "number": 17,
//    "address": "10.0.0.7", "bytes": 150612, "reply_bytes": 812, "wait_ms": 0.1, "infer_ms": 18.2,
//    "seconds": 0.0185, "ending": "reply"}
// `client` counts connections, `number` the requests of one. `ending`: reply; error, with "error";
// late, an answer after the deadline; expired, no answer was tried because the deadline was over.
//
// Two threads: one of the server's own for all connections, and the one that calls run(), on which
// the handler runs. No compression. Browsers (requests with an Origin) are refused.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace frt::host {

struct ServerOptions {
  std::string listen = "127.0.0.1:8000";  // address:port; port 0: any that is free
  std::string api_key;                    // empty: none asked for
  std::string metadata;                   // the first frame's bytes
  uint64_t max_message = uint64_t{32} << 20;
  uint64_t buffer_memory = uint64_t{128} << 20;  // see above; at least 2 max_message
  uint32_t max_clients = 8;
  // Clients of one IPv4 address or one IPv6 network (/64); 0: as many as there may be. Not given:
  // half of max_clients, rounded up; for this machine itself as many as there may be.
  std::optional<uint32_t> max_clients_per_address;
  uint32_t max_connections = 256;            // clients and those that are none yet
  std::chrono::milliseconds deadline{1000};  // from a request's last byte to the reply's first
  std::chrono::milliseconds write_timeout{2000};
  std::chrono::milliseconds handshake_timeout{10000};  // from the accept to the open websocket
  std::chrono::milliseconds receive_timeout{10000};    // from a message's first byte to its last
  std::chrono::milliseconds ping_interval{30000};  // of silence; the same again: closed; 0: never
  // A client without a request for so long gives its place to a newcomer that finds none; 0: never.
  std::chrono::milliseconds idle_limit{300000};
  std::filesystem::path request_log;  // appended to; empty: none

  // Throws FRT_ERR_INVALID_ARGUMENT for limits that contradict each other or have no effect, and
  // what parse_listen() throws (net/address.hpp).
  void check() const;
};

struct ServerCounters {
  std::atomic<uint64_t> connections{0}, refused{0}, requests{0}, replies{0}, errors{0};
  std::atomic<uint64_t> deadline_misses{0}, slow_clients{0};
  std::atomic<uint64_t> handshake_timeouts{0}, receive_timeouts{0}, silent{0};
  std::atomic<uint64_t> idle{0};           // clients that gave their place to a newcomer
  std::atomic<uint64_t> out_of_memory{0};  // connections closed for want of memory
  std::atomic<uint64_t> displaced{0};      // handshakes given up for a newer connection
  std::atomic<uint64_t> accept_failures{0};
  std::atomic<uint32_t> clients{0};
};

class PolicyServer {
 public:
  struct Request {
    std::string_view bytes;         // valid during the call
    double age_ms = 0;              // since its last byte arrived
    double previous_total_ms = -1;  // of the connection's request before; < 0: there was none
  };
  struct Reply {
    Reply(std::string reply, double milliseconds = -1)
        : bytes(std::move(reply)), infer_ms(milliseconds) {}
    std::string bytes;
    double infer_ms;  // of it on the device; < 0: the handler does not say
  };
  // What it throws is sent as error text: readable, and cut to 1 KB.
  using Handler = std::function<Reply(const Request& request)>;
  // Lines for /metrics beyond the server's own.  [any]
  using Metrics = std::function<std::string()>;

  // Binds and listens. Throws FRT_ERR_INVALID_ARGUMENT for an address it cannot read and what
  // ServerOptions::check() throws, FRT_ERR_IO if the address is taken or the request log cannot be
  // opened.  [setup]
  explicit PolicyServer(ServerOptions options, Metrics metrics = {});
  ~PolicyServer();
  PolicyServer(const PolicyServer&) = delete;
  PolicyServer& operator=(const PolicyServer&) = delete;

  uint16_t port() const noexcept;
  const ServerCounters& counters() const noexcept;
  // What /metrics says, but for the number of open connections.  [any]
  std::string metrics() const;
  // Serves until `stopped` says so (asked about ten times a second). Then all connections are
  // closed with 1001.
  void run(const Handler& handler, const std::function<bool()>& stopped);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace frt::host
