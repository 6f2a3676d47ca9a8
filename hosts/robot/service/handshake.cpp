// SPDX-License-Identifier: Apache-2.0
// From the accept to the open websocket.
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <utility>

#include "robot/service/websocket_connection.hpp"

namespace frt::host {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::ip::tcp;

// A peer whose machine is gone is noticed after about a minute, even if it is never written to.
constexpr int kKeepaliveIdle = 30, kKeepaliveInterval = 10, kKeepaliveProbes = 3;

// What was read is no HTTP, as opposed to: nothing more can be read.
bool is_malformed(const boost::system::error_code& error) {
  return error && error != http::error::end_of_stream && error != http::error::partial_message &&
         error.category() == http::make_error_code(http::error::end_of_stream).category();
}

}  // namespace

void WebsocketConnection::begin() {
  set_socket_options();
  set_deadline(Wait::kHandshake, options().handshake_timeout);
  parser_.emplace();
  parser_->header_limit(kHeaderLimit);
  http::async_read(socket(), head_, *parser_,
                   then([this](error_code error, std::size_t) { on_request(error); }));
}

void WebsocketConnection::set_socket_options() {
  error_code ignored;
  socket().set_option(tcp::no_delay(true), ignored);
  socket().set_option(asio::socket_base::keep_alive(true), ignored);
  const auto seconds = [&](int name, int value) {
    setsockopt(socket().native_handle(), IPPROTO_TCP, name, &value, sizeof(value));
  };
  seconds(TCP_KEEPIDLE, kKeepaliveIdle);
  seconds(TCP_KEEPINTVL, kKeepaliveInterval);
  seconds(TCP_KEEPCNT, kKeepaliveProbes);
}

void WebsocketConnection::on_request(error_code error) {
  if (closing_) return;
  if (error == http::error::header_limit) return respond(answer_header_limit());
  if (is_malformed(error)) return respond(answer_malformed());
  if (error) return close_socket();
  if (websocket::is_upgrade(parser_->get()) && head_.size() > 0) {
    return respond(answer_early_frames());
  }
  HttpAnswer answer = answer_request(context_, address(), parser_->get());
  if (answer.status == http::status::switching_protocols) return upgrade();
  respond(std::move(answer));
}

void WebsocketConnection::respond(HttpAnswer answer) {
  answered_ = true;
  if (answer.status != http::status::ok) ++context_.counters.refused;
  auto response = std::make_shared<http::response<http::string_body>>(answer.status, 11);
  response->set(http::field::content_type, "text/plain; charset=utf-8");
  response->set(http::field::connection, "close");
  if (answer.status == http::status::service_unavailable) {
    response->set(http::field::retry_after, "1");
  }
  response->body() = std::move(answer.body);
  response->prepare_payload();
  http::async_write(socket(), *response, then([this, response](error_code error, std::size_t) {
                      if (error) return close_socket();
                      stop_receiving();
                      drain();
                    }));
}

void WebsocketConnection::upgrade() {
  answered_ = client_ = true;
  idle_since_ = ServerClock::now();
  ++context_.counters.clients;
  // The deadlines are the connection's own.
  stream_.set_option(websocket::stream_base::timeout{websocket::stream_base::none(),
                                                     websocket::stream_base::none(), false});
  stream_.auto_fragment(false);  // a reply is one frame, as openpi's server sends it
  stream_.read_message_max(0);   // on_bytes() says more than a bare 1009 would
  stream_.control_callback(
      [this](websocket::frame_type, beast::string_view) { note_sign_of_life(); });
  stream_.async_accept(parser_->get(), then([this](error_code error, std::size_t) {
                         if (closing_) return;
                         if (error) return close_socket();
                         open_ = true;
                         parser_.reset();
                         head_ = {};
                         deadlines_.clear(Wait::kHandshake);
                         note_sign_of_life();
                         stream_.binary(true);
                         write_bytes(asio::buffer(options().metadata), &WebsocketConnection::read);
                       }));
}

}  // namespace frt::host
