// SPDX-License-Identifier: Apache-2.0
// frt/error.hpp - the C++ side of frt_status: the exception our own code throws, the two calls
// that carry it over the C ABI and back, and names for codes, types and spaces.
//
// Inside one module (core, a plugin, a host) errors are `frt::Error`. At the C ABI,
// `guard(error, body)` turns an exception into a code and a filled frt_error; `check(code, error)`
// does the reverse. Nothing else may cross.
#pragma once

#include <frt/base.h>

#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace frt {

// The name of a status code, e.g. "FRT_ERR_NO_VARIANT"; "FRT_ERR_?" if unknown.  [any]
inline const char* status_name(frt_status status) noexcept {
  static constexpr const char* kNames[FRT_STATUS_COUNT] = {
      "FRT_OK",
      "FRT_ERR_INVALID_ARGUMENT",
      "FRT_ERR_OUT_OF_MEMORY",
      "FRT_ERR_DEVICE",
      "FRT_ERR_NO_VARIANT",
      "FRT_ERR_UNBOUND",
      "FRT_ERR_UNSUPPORTED",
      "FRT_ERR_OUT_OF_RANGE",
      "FRT_ERR_NOT_FOUND",
      "FRT_ERR_EXISTS",
      "FRT_ERR_BAD_STATE",
      "FRT_ERR_NOT_READY",
      "FRT_ERR_ABI",
      "FRT_ERR_DEVICE_LOST",
      "FRT_ERR_IO",
      "FRT_ERR_FORMAT",
      "FRT_ERR_MISMATCH",
      "FRT_ERR_CYCLE",
      "FRT_ERR_CALLBACK",
      "FRT_ERR_CANCELLED",
      "FRT_ERR_INTERNAL",
  };
  return status <= 0 && status > -FRT_STATUS_COUNT ? kNames[-status] : "FRT_ERR_?";
}

// An error with its code. `what()` says what, where and what to do next.
class Error : public std::runtime_error {
 public:
  Error(frt_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  frt_status status() const noexcept { return status_; }

 private:
  frt_status status_;
};

// Fills `error` (may be null), cutting the text at a UTF-8 character if it is too long, and
// returns `status`.  [any]
inline frt_status set_error(frt_error* error, frt_status status, std::string_view text) noexcept {
  if (error) {
    std::size_t length = text.size();
    if (length > FRT_ERROR_CAPACITY - 1) {
      length = FRT_ERROR_CAPACITY - 1;
      while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0u) == 0x80u) --length;
    }
    std::memcpy(error->message, text.data(), length);
    error->message[length] = '\0';
    error->code = status;
  }
  return status;
}

// Throws what a C call reported. `what_failed` is put before the message when not empty.  [any]
inline void check(frt_status status, const frt_error& error, std::string_view what_failed = {}) {
  if (status == FRT_OK) return;
  std::string text(what_failed);
  if (!text.empty()) text += ": ";
  text += error.message[0] ? error.message : status_name(status);
  throw Error(status, text);
}

// The same for calls that give no frt_error.  [any]
inline void check(frt_status status, std::string_view what_failed) {
  if (status == FRT_OK) return;
  throw Error(status, std::string(what_failed) + " failed: " + status_name(status));
}

// Runs `body` (returns void or frt_status) at the C ABI: whatever it throws becomes a status code
// and a text in `error`.  [any]
template <class Body>
frt_status guard(frt_error* error, Body&& body) noexcept {
  try {
    if constexpr (std::is_same_v<decltype(body()), void>) {
      std::forward<Body>(body)();
      return FRT_OK;
    } else {
      return std::forward<Body>(body)();
    }
  } catch (const Error& e) {
    return set_error(error, e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return set_error(error, FRT_ERR_OUT_OF_MEMORY, "the host is out of memory");
  } catch (const std::exception& e) {
    return set_error(error, FRT_ERR_INTERNAL, e.what());
  } catch (...) {
    return set_error(error, FRT_ERR_INTERNAL, "an exception of unknown type");
  }
}

// Bits of one element: 4 for F4_E2M1; 0 if `dtype` is unknown.  [any]
inline uint32_t dtype_bits(frt_dtype dtype) noexcept {
  static constexpr uint32_t kBits[FRT_DTYPE_COUNT] = {0,  32, 16, 16, 8,  8,  4,  8, 8,
                                                      32, 32, 64, 64, 64, 16, 16, 8};
  return dtype < FRT_DTYPE_COUNT ? kBits[dtype] : 0;
}

// "f32", "bf16", ...; "?" if unknown.  [any]
inline const char* dtype_name(frt_dtype dtype) noexcept {
  static constexpr const char* kNames[FRT_DTYPE_COUNT] = {
      "none", "f32", "bf16", "f16", "f8_e4m3", "f8_e5m2", "f4_e2m1", "i8",  "u8",
      "i32",  "u32", "i64",  "u64", "f64",     "i16",     "u16",     "bool"};
  return dtype < FRT_DTYPE_COUNT ? kNames[dtype] : "?";
}

// "device", "host-pinned", "host"; "?" if unknown.  [any]
inline const char* space_name(frt_space space) noexcept {
  static constexpr const char* kNames[FRT_SPACE_COUNT] = {"device", "host-pinned", "host"};
  return space < FRT_SPACE_COUNT ? kNames[space] : "?";
}

}  // namespace frt
