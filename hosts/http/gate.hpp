// SPDX-License-Identifier: Apache-2.0
// gate.hpp - whether a request may have come from where it claims: against pages of strangers in a
// browser on this machine, which can send requests here (with their Origin) and can name this
// machine as they like (DNS rebinding).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "http/request.hpp"

namespace frt::host {

struct GateRules {
  std::vector<std::string> hosts;    // names besides addresses and localhost, in lower case
  std::vector<std::string> origins;  // "https://app.example", besides the server's own
};

// Null, or why the request is refused, for its client.
//   Host     must be an IP address, "localhost" or one of `hosts`, with any port; a client of a
//   UNIX
//            socket may name any host.
//   Origin   if there is one, must be https://HOST of the same request, http://HOST for one that
//            came in plain, or one of `origins`.
const char* gate_refusal(const GateRules& rules, const HttpRequest& request);

// Cross-origin requests (CORS): a browser shows an answer to a page of another origin only if the
// answer names that origin, and asks with OPTIONS before it sends a key.

// What every answer to `request` carries for a page of one of `origins`; nothing for anybody else.
HttpHeaders cross_origin_headers(const GateRules& rules, const HttpRequest& request);

// The answer to a browser that asks whether a page of one of `origins` may send a request; nothing
// if `request` is no such question.
std::optional<HttpResponse> preflight_answer(const GateRules& rules, const HttpRequest& request);

}  // namespace frt::host
