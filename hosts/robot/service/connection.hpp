// SPDX-License-Identifier: Apache-2.0
// connection.hpp - one connection, from the accept to the close: an HTTP request, then perhaps a
// websocket. All of it happens on the thread of the context's `io`.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>

#include "robot/service/context.hpp"

namespace frt::host {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Reads and answers from now on; the connection lives as long as one of its operations does, and
  // every state it can be in has a deadline. Throws std::bad_alloc.
  static void start(ServerContext& context, boost::asio::ip::tcp::socket socket,
                    const boost::asio::ip::address& address);

  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  uint64_t id() const noexcept { return id_; }
  // As counted_address() makes it.
  const boost::asio::ip::address& address() const noexcept { return address_; }
  bool is_client() const noexcept { return client_; }

  virtual bool has_socket() const noexcept = 0;
  virtual ServerClock::time_point due() const noexcept = 0;  // of its earliest deadline
  // Bytes held for a message whose end has not come; 0 once it was dropped for them.
  virtual uint64_t unfinished() const noexcept = 0;
  // Since when it has had no request; time_point::max() while it has one.
  virtual ServerClock::time_point idle_since() const noexcept = 0;
  // It was dropped and still holds memory, until its last operation has ended.
  virtual bool is_releasing() const noexcept = 0;

  // Deadlines that are over, and what has waited for memory.
  virtual void tend(ServerClock::time_point now) noexcept = 0;
  virtual void finish(Answer answer) noexcept = 0;
  // Closed for another's sake: it says why, and gives its memory back.
  virtual void drop_for_memory() noexcept = 0;
  virtual void displace() noexcept = 0;
  // A client that rests too long: a newcomer gets its place.
  virtual void give_place() noexcept = 0;
  // The server stops.
  virtual void go_away() noexcept = 0;

 protected:
  Connection(uint64_t id, const boost::asio::ip::address& address) : id_(id), address_(address) {}
  bool client_ = false;  // counted as one, until it is being closed

 private:
  const uint64_t id_;
  const boost::asio::ip::address address_;
};

}  // namespace frt::host
