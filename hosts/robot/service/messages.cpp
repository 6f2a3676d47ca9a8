// SPDX-License-Identifier: Apache-2.0
// Requests and replies of an open websocket.
//
// Before a message's buffer grows, it counts against the budget; where the budget is used up, the
// connection tries again (kRetry) until another one has given something back.
#include <algorithm>
#include <utility>

#include "robot/service/websocket_connection.hpp"
#include "robot/service/wire/shown.hpp"

namespace frt::host {
namespace {

namespace asio = boost::asio;

constexpr uint64_t kLeastRead = uint64_t{16} << 10;
constexpr std::chrono::milliseconds kFarewell{400};

}  // namespace

// ---- signs of life ----

void WebsocketConnection::note_sign_of_life() noexcept {
  pinged_ = false;
  if (options().ping_interval.count() > 0 && !closing_) {
    set_deadline(Wait::kSilence, options().ping_interval);
  }
}

void WebsocketConnection::on_silence() {
  if (pinged_) {
    ++context_.counters.silent;
    return drop("the client sent nothing, not even an answer to a ping (ping_ms)",
                CloseCode::going_away);
  }
  note_sign_of_life();
  pinged_ = true;
  if (pinging_) return;  // the last ping still waits for room in the socket
  stream_.async_ping({}, then([this](error_code, std::size_t) { pinging_ = false; }));
  pinging_ = true;
}

// ---- requests ----

void WebsocketConnection::read() {
  if (closing_) return;
  asio::mutable_buffer into = asio::buffer(first_);
  if (receiving_) {
    const uint64_t room = std::min(in_.capacity(), options().max_message + 1) - in_.size();
    into = asio::buffer(in_.end(), room);
  }
  stream_.async_read_some(into, then([this](error_code error, std::size_t bytes) {
                            reading_ = false;
                            on_bytes(error, bytes);
                          }));
  reading_ = true;
}

void WebsocketConnection::on_bytes(error_code error, std::size_t bytes) {
  if (closing_) {
    in_.release();
    if (dropped_) drain();
    return;
  }
  if (error) return close_socket();
  note_sign_of_life();
  if (busy_) return fail("a request came before the reply to the one before");
  if (stream_.got_text()) return fail("a request is a binary frame, this is a text frame");
  if (receiving_) {
    in_.grow(bytes);
  } else {
    receiving_ = true;
    fresh_ = bytes;
    set_deadline(Wait::kReceive, options().receive_timeout);
  }
  advance();
}

void WebsocketConnection::advance() {
  if (in_.size() + fresh_ > options().max_message) {
    return fail("the message is larger than " + std::to_string(options().max_message) +
                " bytes (max_message)");
  }
  if (!make_room(in_.size() + fresh_)) return;
  in_.append(first_.data(), fresh_);
  fresh_ = 0;
  if (stream_.is_message_done()) return submit();
  const uint64_t next = std::min(in_.size() + kLeastRead, options().max_message + 1);
  if (in_.size() == in_.capacity() && !make_room(next)) return;
  read();
}

bool WebsocketConnection::make_room(uint64_t bytes) {
  if (in_.reserve(bytes, options().max_message + 1)) return true;
  const auto& all = context_.connections.all();
  const bool coming =
      std::ranges::any_of(all, [](const Connection* c) { return c->is_releasing(); });
  Connection* largest = context_.connections.largest_unfinished();
  if (!coming && largest && largest != this && largest->unfinished() > in_.capacity()) {
    largest->drop_for_memory();
  } else if (!coming && bytes > context_.share()) {
    drop_for_memory();
    return false;
  }
  waits_ = shared_from_this();                 // no operation of its own is under way
  set_deadline(Wait::kRetry, kRetryInterval);  // requests under way and replies end, too
  return false;
}

void WebsocketConnection::retry() {
  waits_.reset();
  if (!closing_) return advance();
  if (!dropped_ || !reading_) return;
  error_code ignored;
  socket().cancel(ignored);  // the read was between two operations when it was cancelled
  set_deadline(Wait::kRetry, kRetryInterval);
}

void WebsocketConnection::submit() {
  busy_ = waiting_ = true;
  receiving_ = false;
  deadlines_.clear(Wait::kReceive);
  ++number_;
  ++context_.counters.requests;
  received_ = ServerClock::now();
  set_deadline(Wait::kReply, options().deadline);
  context_.exchange.push(
      Job{id(), number_, std::move(in_), received_, previous_total_ms_, address()});
  read();
}

// ---- replies ----

void WebsocketConnection::finish(Answer answer) noexcept {
  guarded([&] {
    if (answer.number != number_ || !waiting_ || closing_ || answer.expired) return;
    waiting_ = false;
    deadlines_.clear(Wait::kReply);
    if (answer.request.capacity() <= context_.share() / 4) {
      in_ = std::move(answer.request);
      in_.clear();
    }
    if (answer.bytes.empty()) throw std::bad_alloc();
    if (!answer.ok) return fail(std::move(answer.bytes));
    out_ = std::move(answer.bytes);
    reply_bytes_ = out_.capacity();
    context_.memory.add(reply_bytes_);
    stream_.binary(true);
    write_bytes(asio::buffer(out_), &WebsocketConnection::after_reply);
  });
}

void WebsocketConnection::after_reply() {
  ++context_.counters.replies;
  busy_ = false;
  idle_since_ = ServerClock::now();
  previous_total_ms_ = milliseconds_since(received_);
}

void WebsocketConnection::write_bytes(asio::const_buffer bytes,
                                      void (WebsocketConnection::*next)()) {
  set_deadline(Wait::kWrite, options().write_timeout);
  stream_.async_write(bytes, then([this, next](error_code error, std::size_t) {
                        writing_ = false;
                        deadlines_.clear(Wait::kWrite);
                        context_.memory.give(std::exchange(reply_bytes_, 0));
                        out_ = {};
                        if (error) return close_socket();
                        (this->*next)();
                        if (leaving_ && !closing_) go_away();
                      }));
  writing_ = true;
}

void WebsocketConnection::fail(std::string text) {
  if (closing_) return;
  ++context_.counters.errors;
  if (writing_) return close_socket();
  out_ = shown(text, kShownError);
  stop_receiving();
  stream_.binary(false);
  write_bytes(asio::buffer(out_), &WebsocketConnection::after_error);
}

void WebsocketConnection::after_error() {
  close(CloseCode::internal_error, "");
}

void WebsocketConnection::close(CloseCode code, const char* reason) {
  stop_receiving();
  // The server's end waits for no peer that is slow to say good-bye.
  set_deadline(Wait::kWrite,
               leaving_ ? std::min(options().write_timeout, kFarewell) : options().write_timeout);
  stream_.async_close({code, reason}, then([this](error_code, std::size_t) { close_socket(); }));
}

}  // namespace frt::host
