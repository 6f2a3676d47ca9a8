// SPDX-License-Identifier: Apache-2.0
// exchange_queue.hpp - between the threads that answer and the server's thread that sends.  [any]
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "http/exchange.hpp"
#include "net/memory.hpp"

namespace frt::host {

class ExchangeQueue {
 public:
  ExchangeQueue(boost::asio::io_context& io, uint64_t buffer_memory)
      : memory(buffer_memory), io_(&io) {}

  // Something to send.
  void push(std::shared_ptr<Exchange> exchange);
  // An exchange was dropped without an answer.
  void push_abandoned(std::weak_ptr<HttpConnection> connection) noexcept;
  // The request that a connection reads can go on, or has been refused.
  void push_woken(std::weak_ptr<HttpConnection> connection) noexcept;
  // The server goes; nothing is sent any more.
  void close() noexcept;

  struct Ready {
    std::vector<std::shared_ptr<Exchange>> exchanges;
    std::vector<std::weak_ptr<HttpConnection>> abandoned;
    std::vector<std::weak_ptr<HttpConnection>> woken;
  };
  Ready take();

  MemoryBudget memory;  // of bodies

 private:
  void wake();
  void push(std::vector<std::weak_ptr<HttpConnection>> Ready::*list,
            std::weak_ptr<HttpConnection> connection) noexcept;

  std::mutex mutex_;
  boost::asio::io_context* io_;  // null: closed
  Ready ready_;
};

}  // namespace frt::host
