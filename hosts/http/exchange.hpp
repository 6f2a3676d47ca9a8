// SPDX-License-Identifier: Apache-2.0
// exchange.hpp - one request that waits for its answer: whole, or as a stream of bytes.
//
// Everything is [any]: a worker or an engine writes, the server's thread sends. A client that
// leaves, or that does not read what was written for it, ends the exchange: then gone() is true,
// on_gone's function runs once, and what is written later is dropped. An exchange that nobody
// answers is answered with 500 when its last owner drops it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "http/request.hpp"

namespace frt::host {

class HttpConnection;
class ExchangeQueue;

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  // For the server. `body_bytes` are given back to the queue's budget when this object goes.
  Exchange(std::shared_ptr<HttpRequest> request, std::weak_ptr<HttpConnection> connection,
           std::shared_ptr<ExchangeQueue> queue, uint64_t body_bytes, uint64_t stream_limit);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const noexcept { return *request_; }
  // The body, to be parsed and freed; the request's is empty then. By one thread.
  std::string take_body() noexcept { return std::move(request_->body); }
  // What was made of the body lives on, the body does not: its bytes go back to the budget.
  void release_body() noexcept;

  // The whole answer. What comes after an answer or begin() is dropped.
  void respond(HttpResponse response);

  // ---- streams ----
  // Sends the head: a status, a content type, no length.
  void begin(HttpResponse head);
  // False: the client is gone, or more than the limit of bytes waits for it, which ends it.
  bool write(std::string_view bytes);
  void end();

  bool gone() const;
  // Null: it is gone.
  std::shared_ptr<HttpConnection> connection() const noexcept { return connection_.lock(); }
  // Runs on the server's thread when the client leaves before its answer is complete; at once, on
  // the caller's, if it has left. Must return quickly.
  void on_gone(std::function<void()> function);
  // Runs on the server's thread, again and again, while a stream had nothing to send for the
  // server's `heartbeat`. Must return quickly.
  void on_idle(std::function<void()> function);
  // Runs on the server's thread each time all that was written to a stream was sent. Must return
  // quickly. Null: no more.
  void on_sent(std::function<void()> function);
  // Bytes that may wait for the client.
  uint64_t stream_limit() const noexcept { return stream_limit_; }

 private:
  friend class HttpConnection;

  // What the connection takes to send.
  struct Output {
    bool begun = false, ended = false;
    HttpResponse head;    // once, with `begun`; for a whole answer with its body
    bool whole = false;   // the answer is `head` alone
    std::string bytes;    // of the stream since the last take()
    bool broken = false;  // too much waits: the client does not read
  };
  Output take();
  // The connection sent `bytes` of what it took.
  void sent(uint64_t bytes);
  void leave() noexcept;
  void forget() noexcept;
  std::function<void()> idle_function();
  void changed();

  const std::shared_ptr<HttpRequest> request_;
  const std::weak_ptr<HttpConnection> connection_;
  const std::shared_ptr<ExchangeQueue> queue_;
  std::atomic<uint64_t> body_bytes_;
  const uint64_t stream_limit_;
  mutable std::mutex mutex_;
  Output next_;
  bool begun_ = false, over_ = false, gone_ = false, queued_ = false;
  uint64_t waiting_ = 0;  // bytes of the stream that were written and not sent
  std::function<void()> on_gone_, on_idle_, on_sent_;
};

}  // namespace frt::host
