// SPDX-License-Identifier: Apache-2.0
#include "http/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <random>

namespace frt::host {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::size_t kTraceAt = 3, kTraceSize = 32, kSpanAt = 36, kLeast = 55;

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of(kDigits) == text.npos;
}

}  // namespace

std::string trace_id_of(std::string_view traceparent) {
  if (traceparent.size() < kLeast || traceparent[2] != '-' || traceparent[kSpanAt - 1] != '-') {
    return {};
  }
  const std::string_view trace = traceparent.substr(kTraceAt, kTraceSize);
  const bool known = is_hexadecimal(traceparent.substr(0, 2)) && is_hexadecimal(trace) &&
                     traceparent.substr(0, 2) != "ff";
  const bool zero = trace.find_first_not_of('0') == trace.npos;
  return known && !zero ? std::string(trace) : std::string();
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

std::string traceparent(const std::string& trace) {
  return "00-" + trace + "-" + random_hex(8) + "-01";
}

}  // namespace frt::host
