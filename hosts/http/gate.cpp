// SPDX-License-Identifier: Apache-2.0
#include "http/gate.hpp"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cctype>
#include <string_view>

namespace frt::host {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "example" of "example:8080", "::1" of "[::1]:8080".
std::string without_port(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

bool is_known_host(const GateRules& rules, const std::string& host) {
  const std::string name = without_port(host);
  boost::system::error_code error;
  boost::asio::ip::make_address(name, error);
  return !error || name == "localhost" || std::ranges::find(rules.hosts, name) != rules.hosts.end();
}

bool is_allowed_origin(const GateRules& rules, const std::string& origin) {
  return std::ranges::find(rules.origins, lower(origin)) != rules.origins.end();
}

// "authorization, x-api-key": names of headers with commas.
bool is_name_list(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

const char* gate_refusal(const GateRules& rules, const HttpRequest& request) {
  const std::string* sent = request.header("host");
  if (!sent) return "the request has no Host header";
  const std::string host = lower(*sent);
  if (request.address != "unix" && !is_known_host(rules, host)) {
    return "the Host header names another server; see allowed_hosts";
  }
  const std::string* origin = request.header("origin");
  if (!origin) return nullptr;
  const std::string from = lower(*origin);
  // Where a proxy speaks TLS for a server in plain, the page is of https, too.
  if (from == "https://" + host || (!request.secure && from == "http://" + host)) return nullptr;
  if (is_allowed_origin(rules, from)) return nullptr;
  return "requests of this Origin are not served; see allowed_origins";
}

HttpHeaders cross_origin_headers(const GateRules& rules, const HttpRequest& request) {
  const std::string* origin = request.header("origin");
  if (!origin || !is_allowed_origin(rules, *origin)) return {};
  return {{"Access-Control-Allow-Origin", *origin},
          {"Access-Control-Expose-Headers", "Retry-After, X-Request-Id, traceparent"},
          {"Vary", "Origin"}};
}

// SDKs in pages send headers of their own (x-stainless-*, anthropic-*), so whatever the page asks
// for is allowed: the origin is trusted, and a header alone gives no right here.
std::optional<HttpResponse> preflight_answer(const GateRules& rules, const HttpRequest& request) {
  const std::string* origin = request.header("origin");
  const bool asks = request.method == "OPTIONS" && origin &&
                    request.header("access-control-request-method") &&
                    is_allowed_origin(rules, *origin);
  if (!asks) return std::nullopt;
  HttpResponse answer{.content_type = "text/plain; charset=utf-8"};
  answer.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                    {"Access-Control-Max-Age", "600"}};
  const std::string* names = request.header("access-control-request-headers");
  if (names && is_name_list(*names)) {
    answer.headers.emplace_back("Access-Control-Allow-Headers", *names);
  }
  return answer;
}

}  // namespace frt::host
