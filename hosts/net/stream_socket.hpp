// SPDX-License-Identifier: Apache-2.0
// stream_socket.hpp - a connected socket of a server's loop, in plain or within TLS; its user reads
// and writes it the same way. One thread, that of the loop.
//
// Handlers run from the loop, never within the call that names them. Each keeps this object alive.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "net/tls_channel.hpp"

namespace frt::host {

class StreamSocket {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using error_code = boost::system::error_code;

  // Null `tls`: in plain. Throws std::bad_alloc.
  StreamSocket(Socket socket, const TlsContext* tls) : socket_(std::move(socket)) {
    if (tls) tls_ = std::make_unique<TlsChannel>(*tls, socket_.native_handle());
  }

  bool is_open() const noexcept { return socket_.is_open(); }
  bool is_secure() const noexcept { return tls_ != nullptr; }
  int descriptor() noexcept { return socket_.native_handle(); }
  // Of a handshake that failed.
  bool met_plain_http() const noexcept { return tls_ && tls_->met_plain_http(); }

  // ---- handlers take (error_code, bytes) ----
  // Of TLS alone, before all else.
  template <class Handler>
  void async_handshake(Handler handler) {
    run([this] { return tls_->handshake(); }, std::move(handler), false);
  }
  template <class Handler>
  void async_read_some(boost::asio::mutable_buffer to, Handler handler) {
    if (!tls_) return socket_.async_read_some(to, std::move(handler));
    run([this, to] { return tls_->read(to.data(), to.size()); }, std::move(handler), false);
  }
  template <class Handler>
  void async_write_some(boost::asio::const_buffer from, Handler handler) {
    if (!tls_) return socket_.async_write_some(from, std::move(handler));
    run([this, from] { return tls_->write(from.data(), from.size()); }, std::move(handler), false);
  }
  // Tells the peer that nothing more comes: by TLS, where that is spoken, then by TCP.
  template <class Handler>
  void async_end(Handler handler) {
    const auto shut_down = [this, handler](error_code error, std::size_t) {
      if (!error) socket_.shutdown(Socket::shutdown_send, error);
      handler(error, std::size_t{0});
    };
    if (!tls_) {
      return boost::asio::post(socket_.get_executor(), [shut_down] { shut_down({}, 0); });
    }
    run([this] { return tls_->close(); }, shut_down, false);
  }
  // The bytes as they come, whatever they are: to be dropped, where TLS has failed.
  template <class Handler>
  void async_discard_some(boost::asio::mutable_buffer to, Handler handler) {
    socket_.async_read_some(to, std::move(handler));
  }

  // By TCP alone, where TLS has failed.
  void end_plainly() noexcept {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  // `told`: the peer is told by TLS that this is the end, if that takes no waiting.
  void close(bool told) noexcept {
    if (!socket_.is_open()) return;
    if (told && tls_) tls_->close();
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  // `step` now, and again whenever the socket is ready for it.
  template <class Step, class Handler>
  void run(Step step, Handler handler, bool in_loop) {
    if (!socket_.is_open()) return finish(std::move(handler), closed(), in_loop);
    TlsStep done = step();
    if (!done.wait) return finish(std::move(handler), done, in_loop);
    const auto again = [this, step, handler](error_code error) {
      if (error) return finish(handler, {.wait = {}, .error = error}, true);
      try {
        run(step, handler, true);
      } catch (const std::bad_alloc&) {  // the wait was not begun, and nobody else would hear of it
        finish(handler, {.wait = {}, .error = boost::asio::error::no_memory}, true);
      }
    };
    socket_.async_wait(*done.wait, again);
  }
  template <class Handler>
  void finish(Handler handler, const TlsStep& done, bool in_loop) {
    if (in_loop) return handler(done.error, done.bytes);
    boost::asio::post(socket_.get_executor(), [handler = std::move(handler), done]() mutable {
      handler(done.error, done.bytes);
    });
  }
  static TlsStep closed() { return {.wait = {}, .error = boost::asio::error::operation_aborted}; }

  Socket socket_;
  std::unique_ptr<TlsChannel> tls_;
};

}  // namespace frt::host
