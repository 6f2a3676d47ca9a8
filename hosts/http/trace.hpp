// SPDX-License-Identifier: Apache-2.0
// trace.hpp - names of requests: the W3C's Trace Context, and ids of requests and replies.
#pragma once

#include <string>
#include <string_view>

namespace frt::host {

// Where a request stands in a trace. The request's own span is a child of the client's.
struct TraceContext {
  std::string trace;       // id, 32 hexadecimal digits
  std::string parent;      // span of the client, 16 digits; empty: the trace begins here
  std::string span;        // of the request, 16 digits
  std::string flags;       // as the client sent them, two digits; "01" where the trace begins here
  std::string state = {};  // `tracestate` as the client sent it; empty: none
};

// A new span of the trace that the two headers name. Null, empty or malformed headers begin a
// trace: a malformed `tracestate` is dropped alone.  [any]
TraceContext trace_context(const std::string* traceparent, const std::string* tracestate);

// "00-TRACE-SPAN-FLAGS", for who is called on behalf of the request.  [any]
std::string traceparent(const TraceContext& context);

// `bytes` random bytes as hexadecimal digits. Unique, no secret.  [any]
std::string random_hex(std::size_t bytes);

}  // namespace frt::host
