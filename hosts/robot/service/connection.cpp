// SPDX-License-Identifier: Apache-2.0
// The life of a connection: what it waits for, what ends it, and how.
#include "robot/service/connection.hpp"

#include <sys/socket.h>

#include <utility>

#include "net/address.hpp"
#include "robot/service/final_messages.hpp"
#include "robot/service/websocket_connection.hpp"

namespace frt::host {

namespace asio = boost::asio;
using asio::ip::tcp;

void Connection::start(ServerContext& context, tcp::socket socket,
                       const asio::ip::address& address) {
  std::make_shared<WebsocketConnection>(context, std::move(socket), address)->begin();
}

WebsocketConnection::WebsocketConnection(ServerContext& context, Socket socket,
                                         const asio::ip::address& address)
    : Connection(++context.next_id, counted_address(address)),
      context_(context),
      stream_(WatchedSocket(std::move(socket))),
      in_(context.memory) {
  context_.connections.add(*this);
  ++context_.counters.connections;
}

WebsocketConnection::~WebsocketConnection() {
  close_socket();
  context_.memory.give(reply_bytes_);
  context_.connections.remove(*this);
}

// ---- deadlines ----

void WebsocketConnection::set_deadline(Wait which, std::chrono::milliseconds from_now) noexcept {
  deadlines_.set(which, ServerClock::now() + from_now);
  context_.note_due(deadlines_.due());
}

void WebsocketConnection::tend(ServerClock::time_point now) noexcept {
  while (const auto over = deadlines_.take_expired(now)) {
    guarded([&] { on_deadline(*over); });
  }
  context_.note_due(deadlines_.due());
}

void WebsocketConnection::on_deadline(Wait which) {
  ServerCounters& counters = context_.counters;
  const auto over = [](std::chrono::milliseconds limit, const char* option) {
    return " within " + std::to_string(limit.count()) + " ms (" + option + ")";
  };
  switch (which) {
    case Wait::kHandshake:
      ++counters.handshake_timeouts;
      answer_raw(kTimedOut);
      return close_socket();
    case Wait::kReceive:
      ++counters.receive_timeouts;
      return fail("the message was not complete" +
                  over(options().receive_timeout, "receive_timeout_ms"));
    case Wait::kReply:
      ++counters.deadline_misses;
      return fail("no answer" + over(options().deadline, "deadline_ms"));
    case Wait::kWrite:
      if (writing_) ++counters.slow_clients;
      return close_socket();
    case Wait::kSilence:
      return on_silence();
    case Wait::kRetry:
      return retry();
    case Wait::kCount:
      break;
  }
}

// ---- endings ----

void WebsocketConnection::drop_for_memory() noexcept {
  ++context_.counters.out_of_memory;
  drop("the server's buffers are full and this message is the largest (buffer_memory)",
       CloseCode::try_again_later);
}

void WebsocketConnection::displace() noexcept {
  ++context_.counters.displaced;
  answer_raw(kDisplaced);
  close_socket();
}

void WebsocketConnection::give_place() noexcept {
  guarded([&] {
    ++context_.counters.idle;
    if (!open_ || writing_) return close_socket();
    close(CloseCode::going_away,
          "a new client needed the place of this one, which sent no request (idle_ms)");
  });
}

void WebsocketConnection::go_away() noexcept {
  guarded([&] {
    if (!open_ || (closing_ && !writing_)) return close_socket();
    leaving_ = true;
    if (!writing_) close(CloseCode::going_away, "the server stops");
  });
}

void WebsocketConnection::stop_receiving() noexcept {
  closing_ = true;
  if (std::exchange(client_, false)) --context_.counters.clients;
  for (const auto which :
       {Wait::kHandshake, Wait::kReceive, Wait::kReply, Wait::kSilence, Wait::kRetry}) {
    deadlines_.clear(which);
  }
  if (waits_) {  // retry() releases this reference to itself
    deadlines_.set(Wait::kRetry, ServerClock::time_point::min());
    context_.note_due(deadlines_.due());
  }
  if (waiting_) context_.exchange.withdraw(id());
  if (!reading_) in_.release();  // else the read holds it; on_bytes() releases it
}

void WebsocketConnection::drop(std::string_view text, CloseCode code) noexcept {
  if (dropped_ || !has_socket()) return close_socket();
  if (open_ && !writing_ && !closing_ && !socket().is_writing()) {
    send_raw(FinalFrames(text, code).bytes());
  }
  dropped_ = true;
  stop_receiving();
  set_deadline(Wait::kWrite, options().write_timeout);
  error_code ignored;
  if (!reading_ && !writing_) return drain();
  socket().cancel(ignored);
  set_deadline(Wait::kRetry, kRetryInterval);
}

void WebsocketConnection::drain() noexcept {
  set_deadline(Wait::kWrite, options().write_timeout);
  error_code ignored;
  socket().shutdown(tcp::socket::shutdown_send, ignored);
  if (ignored) return close_socket();
  drain_on();
}

void WebsocketConnection::drain_on() noexcept {
  try {
    socket().async_read_some(asio::buffer(context_.discarded),
                             then([this](error_code error, std::size_t) {
                               if (error) return close_socket();
                               drain_on();
                             }));
  } catch (...) {
    close_socket();
  }
}

void WebsocketConnection::send_raw(std::string_view bytes) noexcept {
  (void)!::send(socket().native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void WebsocketConnection::answer_raw(std::string_view response) noexcept {
  if (!answered_) send_raw(response);
}

void WebsocketConnection::close_socket() noexcept {
  stop_receiving();
  deadlines_.clear(Wait::kWrite);
  error_code ignored;
  socket().close(ignored);
}

}  // namespace frt::host
