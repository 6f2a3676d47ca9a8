// SPDX-License-Identifier: Apache-2.0
// trace.hpp - names of requests: trace ids as the W3C's Trace Context has them, and ids of replies.
#pragma once

#include <string>
#include <string_view>

namespace frt::host {

// The trace id of a `traceparent` header: 32 hexadecimal digits; empty for what is none.  [any]
std::string trace_id_of(std::string_view traceparent);

// `bytes` random bytes as hexadecimal digits. Unique, no secret.  [any]
std::string random_hex(std::size_t bytes);

// "00-TRACE-SPAN-01" with a new span.  [any]
std::string traceparent(const std::string& trace);

}  // namespace frt::host
