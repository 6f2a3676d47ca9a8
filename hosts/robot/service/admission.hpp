// SPDX-License-Identifier: Apache-2.0
// admission.hpp - what becomes of an HTTP request: an answer, or a client.
#pragma once

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/status.hpp>
#include <cstdint>
#include <string>

#include "robot/service/context.hpp"

namespace frt::host {

inline constexpr uint32_t kHeaderLimit = 16 << 10;  // bytes of a request's head

using HttpRequest = boost::beast::http::request<boost::beast::http::empty_body>;

struct HttpAnswer {
  boost::beast::http::status status;  // switching_protocols: the request becomes a client
  std::string body;
};

// The answer to a request from `address`. On the thread of `io`; may throw std::bad_alloc and what
// the server's metrics throw.
HttpAnswer answer_request(ServerContext& context, const boost::asio::ip::address& address,
                          const HttpRequest& request);

// The answer to bytes that are no request, or too long for one.
HttpAnswer answer_header_limit();
HttpAnswer answer_malformed();
// The answer to an upgrade with more behind it, which nobody has read as frames.
HttpAnswer answer_early_frames();

}  // namespace frt::host
