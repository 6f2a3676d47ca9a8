// SPDX-License-Identifier: Apache-2.0
// context.hpp - what the connections of a server share: options, counters, memory, the table of
// connections, and the exchange with the thread that runs inferences.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/clock.hpp"
#include "net/memory.hpp"
#include "robot/service/latency_histogram.hpp"
#include "robot/service/server.hpp"

namespace frt::host {

class Connection;
// A complete request, on its way to the handler.
struct Job {
  uint64_t connection = 0, number = 0;
  MessageBuffer bytes;
  ServerClock::time_point received;
  double previous_total_ms = -1;
  boost::asio::ip::address address{};
};

// What came of it, on its way back. A connection that waits no longer is not found, or waits for
// another number.
struct Answer {
  uint64_t connection = 0, number = 0;
  MessageBuffer request;  // so that its memory is used again
  std::string bytes;      // the reply, or the error text; empty: there was no memory for either
  bool ok = false;
  bool expired = false;  // nobody waited any more when its turn came
};

// Jobs one way, answers the other. Room for all that can be under way is made at once.  [any]
class Exchange {
 public:
  explicit Exchange(std::size_t clients);

  void push(Job job);
  // Takes a job back that nobody has begun.
  void withdraw(uint64_t connection) noexcept;
  std::optional<Job> wait_for_job(std::chrono::milliseconds most);
  // An answer that there is no memory for is lost: its connection runs into its deadline.
  void push(Answer answer) noexcept;
  std::optional<Answer> take_answer();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;
  std::vector<Answer> answers_;
};

// The connections in order of arrival; they enter and leave by themselves. On the thread of `io`.
class ConnectionTable {
 public:
  void add(Connection& connection) { all_.push_back(&connection); }
  void remove(const Connection& connection) noexcept;

  const std::vector<Connection*>& all() const noexcept { return all_; }
  Connection* find(uint64_t id) const noexcept;
  uint32_t clients_of(const boost::asio::ip::address& address) const noexcept;
  uint32_t open() const noexcept;  // that have a socket
  // The oldest that is no client, of the address with the most of those; null: all are clients.
  Connection* oldest_guest() const;
  // The one that holds most of an unfinished message; null: none holds any.
  Connection* largest_unfinished() const noexcept;
  // The client that has rested longest, since before `before`; of `address`, unless that is null.
  // Null: there is none.
  Connection* longest_resting(ServerClock::time_point before,
                              const boost::asio::ip::address* address) const noexcept;

 private:
  std::vector<Connection*> all_;
};

struct ServerContext {
  ServerContext(ServerOptions given, PolicyServer::Metrics lines);

  // What a client can hold without ever being closed for want of memory.
  uint64_t share() const noexcept { return options.buffer_memory / options.max_clients; }
  // Clients that `address` may have; an address as counted_address() makes it.
  uint32_t most_clients_of(const boost::asio::ip::address& address) const noexcept;
  // The connection `id` has something to do then.
  void note_due(ServerClock::time_point due) noexcept {
    if (due < next_due) next_due = due;
  }

  const ServerOptions options;
  const PolicyServer::Metrics metrics;
  ServerCounters counters;
  ServiceTimes times;
  MemoryBudget memory;
  Exchange exchange;
  ConnectionTable connections;
  uint64_t next_id = 0;
  ServerClock::time_point next_due = ServerClock::time_point::max();  // the earliest deadline
  char discarded[4096];           // where connections that end read what nobody wants
  boost::asio::io_context io{1};  // goes first: its operations hold connections
};

// All counters as Prometheus text.
std::string metrics_text(const ServerContext& context);
// The part of it that any thread may ask for.
std::string shared_metrics_text(const ServerContext& context);

}  // namespace frt::host
