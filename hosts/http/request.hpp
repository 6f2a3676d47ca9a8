// SPDX-License-Identifier: Apache-2.0
// request.hpp - an HTTP request and its answer, as values. Nothing of a socket or a library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/trace.hpp"

namespace frt::host {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

class BodySink;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // "/v1/models", as it was sent, without the query
  std::string query;    // what stands behind '?', without it
  HttpHeaders headers;  // names in lower case, in the order they came
  std::string body;
  std::string address;  // of the client, without its port; "unix" for a UNIX socket

  bool secure = false;  // it came by TLS

  // What a service made of the head (HttpService::admit()).
  std::string owner;               // whose key was sent; empty: there are no keys
  std::string id;                  // of this request alone
  TraceContext trace;              // that it is a part of
  std::shared_ptr<BodySink> sink;  // takes the body, which is empty then
  std::shared_ptr<void> held;      // goes when the request and all that works on it is over

  // The header's first value; null: it was not sent. `name` in lower case.
  const std::string* header(std::string_view name) const noexcept;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body{};
  HttpHeaders headers{};  // beyond those that every answer has
  // Of a stream: the bytes that it will have, where that is known when it begins.
  std::optional<uint64_t> length{};
};

// "a b" of "a%20b". Nothing for a '%' without two hexadecimal digits.
std::optional<std::string> percent_decoded(std::string_view text);

// The value of `name` in a query, "x" of "model=x&n=1", decoded; nothing if it is not there or
// malformed.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

// "Too Many Requests" of 429; "Unknown" for a status this server never sends.
std::string_view reason_phrase(int status) noexcept;

}  // namespace frt::host
