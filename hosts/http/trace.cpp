// SPDX-License-Identifier: Apache-2.0
#include "http/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <random>

namespace frt::host {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
// VERSION-TRACE-SPAN-FLAGS. A version behind 00 may have more, after one more '-'.
constexpr std::size_t kVersionSize = 2, kTraceAt = 3, kTraceSize = 32, kSpanAt = 36, kSpanSize = 16,
                      kFlagsAt = 53, kWhole = 55;
constexpr std::size_t kMostState = 512;  // the least that the recommendation asks to pass on

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of(kDigits) == text.npos;
}

bool is_id(std::string_view text) {
  return is_hexadecimal(text) && text.find_first_not_of('0') != text.npos;
}

// Whether the header is one that says where the request stands.
bool is_traceparent(std::string_view text) {
  if (text.size() < kWhole || text[kTraceAt - 1] != '-' || text[kSpanAt - 1] != '-' ||
      text[kFlagsAt - 1] != '-') {
    return false;
  }
  const std::string_view version = text.substr(0, kVersionSize);
  if (!is_hexadecimal(version) || version == "ff") return false;
  const bool exact =
      version == "00" ? text.size() == kWhole : text.size() == kWhole || text[kWhole] == '-';
  return exact && is_id(text.substr(kTraceAt, kTraceSize)) &&
         is_id(text.substr(kSpanAt, kSpanSize)) && is_hexadecimal(text.substr(kFlagsAt, 2));
}

// Entries of other tracers are theirs: only what could not stand in a header is refused.
bool is_tracestate(std::string_view text) {
  return !text.empty() && text.size() <= kMostState &&
         std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; }) &&
         text.find('=') != text.npos;
}

}  // namespace

TraceContext trace_context(const std::string* traceparent, const std::string* tracestate) {
  if (!traceparent || !is_traceparent(*traceparent)) {
    return {.trace = random_hex(kTraceSize / 2),
            .parent = {},
            .span = random_hex(kSpanSize / 2),
            .flags = "01"};
  }
  TraceContext context{.trace = traceparent->substr(kTraceAt, kTraceSize),
                       .parent = traceparent->substr(kSpanAt, kSpanSize),
                       .span = random_hex(kSpanSize / 2),
                       .flags = traceparent->substr(kFlagsAt, 2)};
  if (tracestate && is_tracestate(*tracestate)) context.state = *tracestate;
  return context;
}

std::string traceparent(const TraceContext& context) {
  return "00-" + context.trace + "-" + context.span + "-" + context.flags;
}

std::string random_hex(std::size_t bytes) {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::string out;
  out.reserve(2 * bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    const uint64_t value = engine();
    out += kDigits[(value >> 4) & 15];
    out += kDigits[value & 15];
  }
  return out;
}

}  // namespace frt::host
