// SPDX-License-Identifier: Apache-2.0
// listener.hpp - accepts connections, whatever the system is short of.
//
// Out of connections or of file descriptors, a connection of the server's choice gives its place to
// the new one. Where there is none, a descriptor that is kept in reserve lets the new one in for as
// long as it takes to refuse it with 503, or without a word where TLS is spoken. Other failures
// pause the accepting for a moment, so that nothing spins.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "net/address.hpp"
#include "net/clock.hpp"

namespace frt::host {

// The server behind a listener. All calls come on the thread of `io`.
class AcceptingServer {
 public:
  virtual ~AcceptingServer() = default;

  // Clients understand what is sent without TLS.
  virtual bool is_plain() const noexcept { return true; }
  // The number of connections is at its limit.
  virtual bool is_full() const noexcept = 0;
  // Ends one connection for a newer one; false: there is none that may be ended.
  virtual bool displace() = 0;
  // A new connection: `descriptor` is the callee's from now on, also if it throws. `address` is
  // unspecified for a UNIX socket.
  virtual void admit(int descriptor, const boost::asio::ip::address& address) = 0;
  // Accepting failed and pauses.
  virtual void accept_failed() noexcept = 0;
  // A connection was refused for want of descriptors.
  virtual void refused() noexcept = 0;
  // tend() has something to do then.
  virtual void note_due(ServerClock::time_point due) noexcept = 0;
};

class Listener {
 public:
  // Binds and listens; accepts nothing yet. A UNIX socket is made with the rights 0600; one that
  // nobody answers on is replaced. Throws FRT_ERR_IO, with the way out.  [setup]
  Listener(boost::asio::io_context& io, const ListenAddress& address, AcceptingServer& server);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // 0 for a UNIX socket.
  uint16_t port() const noexcept { return port_; }
  // AF_INET, AF_INET6 or AF_UNIX.
  int family() const noexcept { return family_; }
  // Starts, and goes on after a pause or a failure: for the server's loop, every time it comes
  // around. On the thread of `io`, as close().
  void tend(ServerClock::time_point now) noexcept;
  void close() noexcept;

 private:
  void accept_all();
  bool is_pending() noexcept;
  void pause() noexcept;
  void admit(int descriptor, const boost::asio::ip::address& address);
  void refuse_with_reserve();
  void open_reserve() noexcept;

  AcceptingServer& server_;
  std::string unix_path_;
  int family_;
  uint16_t port_ = 0;
  boost::asio::posix::stream_descriptor socket_;
  int reserve_ = -1;
  // True while a wait for connections is under way; shared with it, as it may outlive the listener.
  std::shared_ptr<bool> waiting_;
  ServerClock::time_point paused_until_ = ServerClock::time_point::min();
};

}  // namespace frt::host
