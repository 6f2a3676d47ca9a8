// SPDX-License-Identifier: Apache-2.0
// watched_socket.hpp - a socket that knows whether something is half written. Beast writes pongs
// and answers to a close by itself, in the middle of a read; what is sent beside it must not land
// inside one of them.
#pragma once

#include <boost/asio/associator.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/beast/websocket/teardown.hpp>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace frt::host {

// A write's handler, which also says that the write is over.
template <class Handler>
struct WatchedWrite {
  Handler handler;
  bool* writing;

  template <class... Result>
  void operator()(Result&&... result) {
    *writing = false;
    std::move(handler)(std::forward<Result>(result)...);
  }
};

class WatchedSocket : public boost::asio::ip::tcp::socket {
 public:
  using Base = boost::asio::ip::tcp::socket;
  explicit WatchedSocket(Base socket) : Base(std::move(socket)) {}

  // From the beginning of a write to its end, and for good after a write that was lost for want of
  // memory.
  bool is_writing() const noexcept { return writing_; }

  template <class Buffers, class Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    writing_ = true;
    Base::async_write_some(
        buffers, WatchedWrite<std::decay_t<Handler>>{std::forward<Handler>(handler), &writing_});
  }

  template <class Handler>
  friend void async_teardown(boost::beast::role_type role, WatchedSocket& socket,
                             Handler&& handler) {
    boost::beast::websocket::async_teardown(role, static_cast<Base&>(socket),
                                            std::forward<Handler>(handler));
  }

 private:
  bool writing_ = false;
};

}  // namespace frt::host

// The handler's executor, allocator and the like stay its own.
template <template <class, class> class Associator, class Handler, class Default>
struct boost::asio::associator<Associator, frt::host::WatchedWrite<Handler>, Default>
    : Associator<Handler, Default> {
  static auto get(const frt::host::WatchedWrite<Handler>& write) noexcept {
    return Associator<Handler, Default>::get(write.handler);
  }
  static auto get(const frt::host::WatchedWrite<Handler>& write, const Default& other) noexcept {
    return Associator<Handler, Default>::get(write.handler, other);
  }
};
