// SPDX-License-Identifier: Apache-2.0
#include "robot/service/admission.hpp"

#include <boost/beast/http/field.hpp>
#include <boost/beast/http/verb.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <string_view>

#include "net/secret.hpp"
#include "robot/service/connection.hpp"

namespace frt::host {
namespace {

namespace http = boost::beast::http;
namespace websocket = boost::beast::websocket;

bool authorised(const std::string& key, const HttpRequest& request) {
  if (key.empty()) return true;
  const auto found = request.find(http::field::authorization);
  if (found == request.end()) return false;
  const auto value = found->value();
  return equal_secret({value.data(), value.size()}, "Api-Key " + key);
}

// Takes the place of a client that has rested too long; of `address`, unless that is null.
bool win_place(ServerContext& context, const boost::asio::ip::address* address) {
  const auto limit = context.options.idle_limit;
  if (limit.count() == 0) return false;
  Connection* resting = context.connections.longest_resting(ServerClock::now() - limit, address);
  if (resting) resting->give_place();
  return resting != nullptr;
}

}  // namespace

HttpAnswer answer_request(ServerContext& context, const boost::asio::ip::address& address,
                          const HttpRequest& request) {
  const ServerOptions& options = context.options;
  if (request.find(http::field::origin) != request.end()) {
    return {http::status::forbidden, "browsers are not served\n"};
  }
  const bool upgrade = websocket::is_upgrade(request);
  if (!upgrade) {
    if (request.method() != http::verb::get) {
      return {http::status::method_not_allowed, "GET only\n"};
    }
    if (request.target() == "/healthz") return {http::status::ok, "OK\n"};
  }
  if (!authorised(options.api_key, request)) {
    return {http::status::unauthorized, "wrong or no Api-Key\n"};
  }
  if (!upgrade) {
    if (request.target() == "/metrics") return {http::status::ok, metrics_text(context)};
    return {http::status::not_found, "here are /healthz, /metrics and the websocket of a policy\n"};
  }
  const uint32_t most = context.most_clients_of(address);
  if (most < options.max_clients && context.connections.clients_of(address) >= most &&
      !win_place(context, &address)) {
    return {http::status::service_unavailable, "your address has its " + std::to_string(most) +
                                                   " clients (max_clients_per_address)\n"};
  }
  if (context.counters.clients >= options.max_clients && !win_place(context, nullptr)) {
    return {
        http::status::service_unavailable,
        "the server has its " + std::to_string(options.max_clients) + " clients (max_clients)\n"};
  }
  return {http::status::switching_protocols, {}};
}

HttpAnswer answer_header_limit() {
  return {http::status::request_header_fields_too_large,
          "the head of a request has at most " + std::to_string(kHeaderLimit) + " bytes\n"};
}

HttpAnswer answer_malformed() {
  return {http::status::bad_request, "this is no request that is served here\n"};
}

HttpAnswer answer_early_frames() {
  return {http::status::bad_request, "frames came before the answer to the upgrade\n"};
}

}  // namespace frt::host
