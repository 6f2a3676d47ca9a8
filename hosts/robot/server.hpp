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
// deadline is over, whatever happens to the inference. A client that does not read what it is sent
// is cut off. Requests of several clients are served in their order of arrival; each client may
// have one in flight. Pings are answered at any time.
//
// Two threads: one of the server's own for all connections, and the one that calls run(), on which
// the handler runs. No compression. Browsers (requests with an Origin) are refused.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace frt::host {

struct ServerOptions {
  std::string listen = "127.0.0.1:8000";  // address:port; port 0: any that is free
  std::string api_key;                    // empty: none asked for
  std::string metadata;                   // the first frame's bytes
  uint64_t max_message = uint64_t{32} << 20;
  uint32_t max_clients = 8;
  std::chrono::milliseconds deadline{1000};  // from a request's last byte to the reply's first
  std::chrono::milliseconds write_timeout{2000};
};

struct ServerCounters {
  std::atomic<uint64_t> connections{0}, refused{0}, requests{0}, replies{0}, errors{0};
  std::atomic<uint64_t> deadline_misses{0}, slow_clients{0};
  std::atomic<uint32_t> clients{0};
};

class PolicyServer {
 public:
  struct Request {
    std::string_view bytes;
    double age_ms = 0;              // since its last byte arrived
    double previous_total_ms = -1;  // of the connection's request before; < 0: there was none
  };
  // Returns the reply's bytes. What it throws is sent as error text.
  using Handler = std::function<std::string(const Request& request)>;
  // Lines for /metrics beyond the server's own. Called on the connections' thread.
  using Metrics = std::function<std::string()>;

  // Binds and listens. Throws FRT_ERR_INVALID_ARGUMENT for an address it cannot read, FRT_ERR_IO if
  // the address is taken.  [setup]
  explicit PolicyServer(ServerOptions options, Metrics metrics = {});
  ~PolicyServer();
  PolicyServer(const PolicyServer&) = delete;
  PolicyServer& operator=(const PolicyServer&) = delete;

  uint16_t port() const noexcept;
  const ServerCounters& counters() const noexcept;
  // Serves until `stopped` says so (asked about ten times a second). Then all connections are
  // closed with 1001.
  void run(const Handler& handler, const std::function<bool()>& stopped);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace frt::host
