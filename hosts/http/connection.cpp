// SPDX-License-Identifier: Apache-2.0
// The parser is Beast's; heads of answers are written here, as there are few kinds.
#include "http/connection.hpp"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/none.hpp>
#include <boost/system/errc.hpp>
#include <cctype>
#include <ctime>
#include <new>
#include <stdexcept>
#include <utility>

#include "http/body_sink.hpp"

namespace frt::host {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr std::chrono::milliseconds kLookAfter{250};
constexpr uint64_t kBodyStep = uint64_t{64} << 10;
// A peer whose machine is gone is noticed after about a minute, even if it is never written to.
constexpr int kUnacknowledgedMilliseconds = 60000;
constexpr int kKeepaliveIdle = 30, kKeepaliveInterval = 10, kKeepaliveProbes = 3;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string date_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  const std::size_t size =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), size};
}

std::string hexadecimal(std::size_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  do out.insert(out.begin(), kDigits[value % 16]);
  while ((value /= 16) != 0);
  return out;
}

void set_options(int socket) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveInterval);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  // No probes are sent while data waits for its acknowledgement.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
}

// Whether the other side closed, or shut down its sending half, whatever of it is not read yet.
bool has_left(int socket) {
  pollfd state{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

template <class Body>
void HttpConnection::guarded(Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    ++shared_.counters.failures;
    close("failed");
  }
}

HttpConnection::HttpConnection(HttpShared& shared, Socket socket, const asio::ip::address& address,
                               bool is_unix, const std::shared_ptr<const TlsContext>& tls)
    : shared_(shared),
      socket_(std::move(socket), tls.get()),
      address_(counted_address(address)),
      shown_address_(is_unix ? "unix" : address.to_string()),
      in_(shared.options.max_head + arrived_.size()) {
  shared_.connections.push_back(this);
  ++shared_.counters.connections;
  ++shared_.counters.open;
}

HttpConnection::~HttpConnection() {
  close("server stopped");
  shared_.queue->memory.give(body_room_);
  std::erase(shared_.connections, this);
  --shared_.counters.open;
}

void HttpConnection::start() {
  set_options(socket_.descriptor());
  if (!socket_.is_secure()) return begin_requests();
  set_deadline(HttpWait::kHandshake, shared_.options.head_timeout);
  socket_.async_handshake([this, self = shared_from_this()](error_code error, std::size_t) {
    guarded([&] { on_handshake(error); });
  });
}

void HttpConnection::begin_requests() {
  // A connection that never says anything is no better than one that stops within a head.
  set_deadline(HttpWait::kHead, shared_.options.head_timeout);
  read();
}

// ---- TLS ----

void HttpConnection::on_handshake(error_code error) {
  deadlines_.clear(HttpWait::kHandshake);
  if (!socket_.is_open()) return;
  if (!error) {
    ++shared_.counters.tls_handshakes;
    return begin_requests();
  }
  if (error != boost::system::errc::protocol_error) return close("client left");
  shared_.count(socket_.met_plain_http() ? HttpRefusal::kPlainHttp : HttpRefusal::kTlsHandshake);
  tls_failed_ = true;
  socket_.end_plainly();
  read_away();
}

// ---- deadlines ----

void HttpConnection::set_deadline(HttpWait wait, std::chrono::milliseconds from_now) noexcept {
  deadlines_.set(wait, ServerClock::now() + from_now);
  shared_.note_due(deadlines_.due());
}

void HttpConnection::tend(ServerClock::time_point now) noexcept {
  while (const auto over = deadlines_.take_expired(now)) {
    guarded([&] { on_deadline(*over); });
  }
  shared_.note_due(deadlines_.due());
}

void HttpConnection::on_deadline(HttpWait wait) {
  switch (wait) {
    case HttpWait::kHandshake:
      shared_.count(HttpRefusal::kTlsHandshakeTimeout);
      return close("handshake timeout");
    case HttpWait::kHead:
      return refuse(HttpRefusal::kHeadTimeout, 408, "the request's head did not arrive in time");
    case HttpWait::kBody:
      return refuse(HttpRefusal::kBodyTimeout, 408, "the request's body did not arrive in time");
    case HttpWait::kWrite:
      shared_.count(HttpRefusal::kWriteTimeout);
      return close("write timeout");
    case HttpWait::kHeartbeat:
      if (const auto exchange = exchange_.lock()) {
        if (const auto idle = exchange->idle_function()) idle();
        set_deadline(HttpWait::kHeartbeat, shared_.options.heartbeat);
      }
      return;
    case HttpWait::kFullBuffer:
      if (has_left(socket_.descriptor())) return close("client left");
      return set_deadline(HttpWait::kFullBuffer, kLookAfter);
    case HttpWait::kIdle:
    case HttpWait::kLinger:
      return close("idle");
    case HttpWait::kCount:
      break;
  }
}

// ---- requests ----

void HttpConnection::read() {
  if (reading_ || !socket_.is_open()) return;
  const std::size_t room = in_.max_size() - in_.size();
  if (room == 0 || sink_full_) {  // what runs ahead waits in the system's buffer
    stalled_ = shared_from_this();
    set_deadline(HttpWait::kFullBuffer, kLookAfter);
    return;
  }
  stalled_.reset();
  deadlines_.clear(HttpWait::kFullBuffer);
  reading_ = true;
  const asio::mutable_buffer to(arrived_.data(), std::min(room, arrived_.size()));
  const auto done = [this, self = shared_from_this()](error_code error, std::size_t bytes) {
    guarded([&] { on_read(error, bytes); });
  };
  if (tls_failed_) {
    socket_.async_discard_some(to, done);
  } else {
    socket_.async_read_some(to, done);
  }
}

void HttpConnection::on_read(error_code error, std::size_t bytes) {
  reading_ = false;
  if (error == boost::system::errc::protocol_error && socket_.is_open()) {
    shared_.count(HttpRefusal::kTlsProtocol);
  }
  if (error) return close("client left");
  in_.commit(asio::buffer_copy(in_.prepare(bytes), asio::buffer(arrived_.data(), bytes)));
  shared_.counters.bytes_in += bytes;
  if (lingering_) {
    in_.clear();
  } else if (!busy_) {
    parse();
  }
  read();
}

void HttpConnection::parse() {
  while (!busy_ && !lingering_ && !sink_full_ && socket_.is_open() && in_.size() > 0) {
    if (!parser_) {
      deadlines_.clear(HttpWait::kIdle);
      set_deadline(HttpWait::kHead, shared_.options.head_timeout);
      request_ = std::make_shared<HttpRequest>();
      head_done_ = false;
      parser_.emplace();
      parser_->header_limit(shared_.options.max_head);
      parser_->body_limit(boost::none);  // on_head() and append_body() look
    }
    // Boost.Beast 1.81 asserts that the last chunk has come with its trailer's end, "0\r\n\r\n",
    // when it looks at it once more.
    const std::string_view unread(static_cast<const char*>(in_.data().data()), in_.size());
    if (head_done_ && parser_->chunked() && unread.size() < 5 && unread.starts_with("0\r\n"))
      return;
    auto& body = parser_->get().body();
    body.data = shared_.scratch;
    body.size = sizeof(shared_.scratch);
    body.more = true;
    error_code error;
    const std::size_t used = parser_->put(in_.data(), error);
    in_.consume(used);
    const std::size_t got = sizeof(shared_.scratch) - body.size;
    if (error == http::error::need_buffer) error = {};
    const bool wants_more = error == http::error::need_more;
    if (wants_more) error = {};
    if (error == http::error::header_limit) {
      return refuse(HttpRefusal::kHeadTooLarge, 431, "the request's head is too large");
    }
    if (error)
      return refuse(HttpRefusal::kMalformed, 400, "the request is not well-formed HTTP/1.1");
    if (parser_->is_header_done() && !std::exchange(head_done_, true) && !on_head()) return;
    if (got > 0 && !append_body(got)) return;
    if (parser_->is_done()) return submit();
    if (wants_more && used == 0) {
      // A line of a head, a chunk's head or a trailer that does not fit into the buffer.
      if (in_.size() < in_.max_size()) return;
      return refuse(HttpRefusal::kHeadTooLarge, 431, "the request's head is too large");
    }
  }
}

bool HttpConnection::on_head() {
  const auto& head = parser_->get();
  ++shared_.counters.requests;
  head_time_ = ServerClock::now();
  keep_alive_ = parser_->keep_alive() && !shared_.draining;
  chunked_ = head.version() >= 11;
  request_->method = std::string(head.method_string());
  body_allowed_ = request_->method != "HEAD";
  const std::string_view target(head.target().data(), head.target().size());
  const std::size_t mark = target.find('?');
  request_->path = target.substr(0, mark);
  if (mark != target.npos) request_->query = target.substr(mark + 1);
  request_->address = shown_address_;
  request_->secure = socket_.is_secure();
  for (const auto& field : head) {
    const auto name = field.name_string();
    const auto value = field.value();
    request_->headers.emplace_back(lower({name.data(), name.size()}),
                                   std::string(value.data(), value.size()));
  }
  deadlines_.clear(HttpWait::kHead);
  // Whoever forwards requests here must see the same ends of them: no body's length in doubt, one
  // name of the server.
  const bool coded = head.find(http::field::transfer_encoding) != head.end();
  const bool doubtful = coded && (!parser_->chunked() || head.version() < 11);
  if (doubtful || head.count(http::field::host) > 1) {
    refuse(HttpRefusal::kMalformed, 400, "the request is not well-formed HTTP/1.1");
    return false;
  }
  if (shared_.draining) {
    refuse(HttpRefusal::kDraining, 503, "the server stops");
    return false;
  }
  if (auto refusal = shared_.service.admit(*request_)) {
    // What the client still sends is no request.
    keep_alive_ = keep_alive_ && parser_->is_done();
    busy_ = true;
    answer(*refusal);
    return false;
  }
  BodySink* const sink = request_->sink.get();
  if (parser_->content_length().value_or(0) > (sink ? sink->limit() : shared_.options.max_body)) {
    refuse_large_body();
    return false;
  }
  if (sink) {
    sink_bytes_ = sink_bytes_in_time_ = 0;
    sink->start([queue = shared_.queue, self = weak_from_this()] { queue->push_woken(self); });
  }
  if (!parser_->is_done()) {
    set_deadline(HttpWait::kBody, shared_.options.body_timeout);
    const std::string* expect = request_->header("expect");
    if (expect && lower(*expect) == "100-continue") {
      next_ += "HTTP/1.1 100 Continue\r\n\r\n";
      write();
    }
  }
  return true;
}

// Memory is counted before it is allocated, and allocated as the body arrives: a length that is
// only claimed costs nothing.
bool HttpConnection::append_body(std::size_t bytes) {
  if (request_->sink) return append_to_sink(*request_->sink, bytes);
  std::string& body = request_->body;
  const uint64_t needed = body.size() + bytes;
  if (needed > shared_.options.max_body) {
    refuse_large_body();
    return false;
  }
  if (needed > body_room_) {
    const uint64_t wanted = std::min(std::max(needed, std::max(body_room_ * 2, kBodyStep)),
                                     std::max(needed, shared_.options.max_body));
    if (!shared_.queue->memory.take(wanted - body_room_)) {
      refuse(HttpRefusal::kMemory, 503, "the server's buffers are full; try again later");
      return false;
    }
    body_room_ = wanted;
    body.reserve(wanted);
  }
  body.append(shared_.scratch, bytes);
  return true;
}

// A body that is longer than max_body may take longer, too.
bool HttpConnection::append_to_sink(BodySink& sink, std::size_t bytes) {
  if (sink_bytes_ + bytes > sink.limit()) {
    refuse_large_body();
    return false;
  }
  sink_bytes_ += bytes;
  sink_bytes_in_time_ += bytes;
  if (sink_bytes_in_time_ >= shared_.options.max_body) {
    sink_bytes_in_time_ = 0;
    set_deadline(HttpWait::kBody, shared_.options.body_timeout);
  }
  sink_full_ = !sink.put({shared_.scratch, bytes});
  // It is not the client who lets wait.
  if (sink_full_) deadlines_.clear(HttpWait::kBody);
  return true;
}

void HttpConnection::sink_woke() {
  if (busy_ || lingering_ || !socket_.is_open() || !request_ || !request_->sink) return;
  guarded([&] {
    if (const auto refusal = request_->sink->refusal()) return end_early(*refusal);
    if (!std::exchange(sink_full_, false)) return;
    sink_bytes_in_time_ = 0;
    set_deadline(HttpWait::kBody, shared_.options.body_timeout);
    parse();
    read();
  });
}

void HttpConnection::submit() {
  busy_ = true;
  sink_full_ = false;
  answered_ = streaming_ = false;
  deadlines_.clear(HttpWait::kBody);
  auto exchange =
      std::make_shared<Exchange>(request_, weak_from_this(), shared_.queue,
                                 std::exchange(body_room_, 0), shared_.options.stream_buffer);
  exchange_ = exchange;
  shared_.service.handle(std::move(exchange));
}

void HttpConnection::refuse_large_body() {
  refuse(HttpRefusal::kBodyTooLarge, 413, "the request's body is too large");
}

void HttpConnection::refuse(HttpRefusal refusal, int status, const char* text) {
  if (busy_ || lingering_) return close("failed");
  shared_.count(refusal);
  if (!request_) request_ = std::make_shared<HttpRequest>();
  if (!head_done_) {
    head_time_ = ServerClock::now();
    request_->address = shown_address_;
  }
  deadlines_.clear(HttpWait::kHead);
  body_allowed_ = true;
  end_early(shared_.service.error_response(*request_, status, text));
}

// What the client still sends is no request.
void HttpConnection::end_early(const HttpResponse& response) {
  deadlines_.clear(HttpWait::kBody);
  keep_alive_ = sink_full_ = false;
  busy_ = true;
  answer(response);
}

// ---- answers ----

void HttpConnection::answer(const HttpResponse& response) {
  put_head(response, true);
  // A 304 has no body; its length is that of the answer in its place.
  if (body_allowed_ && response.status != 304) next_ += response.body;
  answered_ = true;
  write();
}

void HttpConnection::put_head(const HttpResponse& response, bool whole) {
  status_ = response.status;
  if (shared_.draining) keep_alive_ = false;
  length_left_ = whole ? std::nullopt : response.length;
  if (length_left_) chunked_ = false;
  // The end of the connection ends the stream.
  if (!whole && !chunked_ && !length_left_) keep_alive_ = false;
  const auto line = [&](std::string_view name, std::string_view value) {
    next_ += name;
    next_ += ": ";
    for (const char c : value) next_ += c == '\r' || c == '\n' ? ' ' : c;
    next_ += "\r\n";
  };
  next_ += "HTTP/1.1 " + std::to_string(response.status) + " ";
  next_ += reason_phrase(response.status);
  next_ += "\r\n";
  line("Date", date_text());
  line("Content-Type", response.content_type);
  if (whole) {
    line("Content-Length", std::to_string(response.body.size()));
  } else {
    line("Cache-Control", "no-cache");
    if (length_left_) line("Content-Length", std::to_string(*length_left_));
    if (chunked_) line("Transfer-Encoding", "chunked");
  }
  line("Connection", keep_alive_ ? "keep-alive" : "close");
  for (const auto& [name, value] : shared_.service.standard_headers(*request_)) line(name, value);
  for (const auto& [name, value] : response.headers) line(name, value);
  next_ += "\r\n";
}

void HttpConnection::put_chunk(std::string_view bytes) {
  if (bytes.empty() || !body_allowed_) return;
  if (length_left_) {
    if (bytes.size() > *length_left_) throw std::length_error("a stream is longer than it said");
    *length_left_ -= bytes.size();
  }
  if (chunked_) next_ += hexadecimal(bytes.size()) + "\r\n";
  next_ += bytes;
  if (chunked_) next_ += "\r\n";
}

void HttpConnection::send_output(Exchange& exchange) {
  if (exchange_.lock().get() != &exchange || !busy_ || answered_) return;
  guarded([&] {
    Exchange::Output output = exchange.take();
    if (output.broken) {
      shared_.count(HttpRefusal::kSlowClient);
      return close("slow client");
    }
    if (output.whole) return answer(output.head);
    if (output.begun) {
      streaming_ = true;
      ++shared_.counters.streams;
      put_head(output.head, false);
    }
    put_chunk(output.bytes);
    payload_next_ += output.bytes.size();
    if (output.ended) {
      const bool short_of = body_allowed_ && length_left_.value_or(0) > 0;
      if (short_of) throw std::length_error("a stream is shorter than it said");
      if (chunked_ && body_allowed_) next_ += "0\r\n\r\n";
      answered_ = true;
      deadlines_.clear(HttpWait::kHeartbeat);
    } else {
      set_deadline(HttpWait::kHeartbeat, shared_.options.heartbeat);
    }
    write();
  });
}

void HttpConnection::abandoned() {
  if (!busy_ || answered_) return;
  ++shared_.counters.failures;
  if (streaming_) return close("failed");
  guarded([&] {
    answer(shared_.service.error_response(*request_, 500, "the request was not answered"));
  });
}

void HttpConnection::write() {
  if (writing_ || !socket_.is_open()) return;
  if (next_.empty()) return after_write();
  out_.swap(next_);
  next_.clear();
  payload_out_ = std::exchange(payload_next_, 0);
  writing_ = true;
  write_on(0);
}

void HttpConnection::write_on(std::size_t offset) {
  set_deadline(HttpWait::kWrite, shared_.options.write_timeout);
  socket_.async_write_some(asio::buffer(out_) + offset, [this, self = shared_from_this(), offset](
                                                            error_code error, std::size_t bytes) {
    guarded([&] {
      if (error) {
        writing_ = false;
        return close("client left");
      }
      shared_.counters.bytes_out += bytes;
      answer_bytes_ += bytes;
      if (offset + bytes < out_.size()) return write_on(offset + bytes);
      writing_ = false;
      out_.clear();
      deadlines_.clear(HttpWait::kWrite);
      if (const auto exchange = exchange_.lock()) exchange->sent(payload_out_);
      payload_out_ = 0;
      write();
    });
  });
}

void HttpConnection::after_write() {
  if (!busy_ || !answered_) return;
  finish("complete");
  if (keep_alive_ && !shared_.draining) return next_request();
  linger();
}

// The request is over; the service hears what became of it.
void HttpConnection::finish(const char* ending) noexcept {
  if (!std::exchange(busy_, false)) return;
  if (std::exchange(streaming_, false)) --shared_.counters.streams;
  const bool complete = answered_;
  deadlines_.clear(HttpWait::kHeartbeat);
  if (const auto exchange = exchange_.lock()) {
    if (complete) {
      exchange->forget();
    } else {
      exchange->leave();
    }
  }
  exchange_.reset();
  const std::chrono::duration<double> taken = ServerClock::now() - head_time_;
  shared_.service.finished({.request = *request_,
                            .status = status_,
                            .bytes_out = answer_bytes_,
                            .seconds = taken.count(),
                            .complete = complete,
                            .ending = ending});
  request_.reset();
  status_ = 0;
  answer_bytes_ = 0;
}

void HttpConnection::next_request() {
  parser_.reset();
  answered_ = false;
  for (std::string* buffer : {&out_, &next_}) {
    if (buffer->empty() && buffer->capacity() > kBodyStep) std::string().swap(*buffer);
  }
  set_deadline(HttpWait::kIdle, shared_.options.idle_timeout);
  parse();
  read();
}

void HttpConnection::linger() {
  socket_.async_end([this, self = shared_from_this()](error_code error, std::size_t) {
    if (error) close("complete");
  });
  read_away();
}

// Closing with unread bytes would take what was sent from the client: they are read away for a
// while.
void HttpConnection::read_away() {
  lingering_ = true;
  in_.clear();
  set_deadline(HttpWait::kLinger, kLingerTime);
  read();
}

void HttpConnection::close(const char* ending) noexcept {
  // Without the end of its TLS an answer that is not whole looks like it.
  const bool whole = !busy_;
  const bool left = busy_ && !answered_;
  if (busy_) {
    if (left) ++shared_.counters.disconnects;
    answered_ = false;  // all of it is not with the client
    finish(ending);
  }
  for (int wait = 0; wait < static_cast<int>(HttpWait::kCount); ++wait) {
    deadlines_.clear(static_cast<HttpWait>(wait));
  }
  socket_.close(whole);
  stalled_.reset();
}

void HttpConnection::displace() noexcept {
  shared_.count(HttpRefusal::kDisplaced);
  close("displaced");
}

void HttpConnection::drain() noexcept {
  keep_alive_ = false;
  if (!busy_ && !parser_ && !lingering_) close("server stopped");
}

}  // namespace frt::host
