// SPDX-License-Identifier: Apache-2.0
// listener.hpp - accepts connections, whatever the system is short of.
//
// Out of connections or of file descriptors, the oldest connection that is no client gives its
// place to the new one. Where there is none, a descriptor that is kept in reserve lets the new one
// in for as long as it takes to refuse it with 503. Other failures pause the accepting for a
// moment, so that nothing spins.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "robot/server/context.hpp"

namespace frt::host {

class Listener {
 public:
  // Binds and listens; accepts nothing yet. Throws boost::system::system_error.  [setup]
  Listener(ServerContext& context, const boost::asio::ip::tcp::endpoint& endpoint);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const noexcept;
  // Starts, and goes on after a pause or a failure: for the server's loop, every time it comes
  // around. On the thread of `io`, as close().
  void tend(ServerClock::time_point now) noexcept;
  void close() noexcept;

 private:
  void accept_all();
  bool is_pending() noexcept;
  void pause() noexcept;
  void admit(int descriptor, const boost::asio::ip::address& address);
  bool displace_guest();
  void refuse_with_reserve();
  void open_reserve() noexcept;

  ServerContext& context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp protocol_;
  int reserve_ = -1;
  // True while a wait for connections is under way; shared with it, as it may outlive the listener.
  std::shared_ptr<bool> waiting_;
  ServerClock::time_point paused_until_ = ServerClock::time_point::min();
};

}  // namespace frt::host
