// SPDX-License-Identifier: Apache-2.0
// frt/error.hpp - the C++ side of frt_status: the exception our own code throws, the two calls
// that carry it over the C ABI and back, and names for codes, types and spaces.
//
// Inside one module (core, a plugin, a host) errors are `frt::Error`. At the C ABI,
// `guard(error, body)` turns an exception into a code and a filled frt_error; `check(code, error)`
// does the reverse. Nothing else may cross.
#pragma once

#include <frt/base.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <frt/error_sink.hpp>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace frt {

// True for a code that this version defines.  [any]
inline bool is_status(frt_status status) noexcept {
  return status <= 0 && status > -FRT_STATUS_COUNT;
}

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
  return is_status(status) ? kNames[-status] : "FRT_ERR_?";
}

// The name, or for a code that this version does not define its number: for errors.  [any]
inline std::string status_text(frt_status status) {
  if (is_status(status)) return status_name(status);
  return "status " + std::to_string(status) + ", which ABI " + std::to_string(FRT_ABI_MAJOR) + "." +
         std::to_string(FRT_ABI_MINOR) + " does not define";
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

namespace detail {

// What ends a text that was cut: how long it was, and whether the log has it. A text that was cut
// before keeps that end, and is not given to the log again.
inline std::string_view end_of_cut(std::string_view text, char (&room)[64]) noexcept {
  constexpr std::string_view kLogged = "; the log has all of it)";
  if (text.ends_with(kLogged)) {
    const std::size_t start = text.rfind("... (");
    if (start != std::string_view::npos && text.size() - start < sizeof(room)) {
      return text.substr(start);
    }
  }
  const int bytes = std::snprintf(room, sizeof(room), "... (%zu bytes%s", text.size(),
                                  ErrorSink::send(text) ? kLogged.data() : ")");
  return {room, static_cast<std::size_t>(bytes)};
}

}  // namespace detail

// Fills `error` (may be null) and returns `status`. A text that is too long is cut at a UTF-8
// character and ends with "... (N bytes; the log has all of it)"; the full text goes to ErrorSink
// (frt/error_sink.hpp).  [any]
inline frt_status set_error(frt_error* error, frt_status status, std::string_view text) noexcept {
  if (!error) return status;
  char room[64];
  std::string_view end;
  std::size_t length = text.size();
  if (length > FRT_ERROR_CAPACITY - 1) {
    end = detail::end_of_cut(text, room);
    length = FRT_ERROR_CAPACITY - 1 - end.size();
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0u) == 0x80u) --length;
  }
  std::memcpy(error->message, text.data(), length);
  if (!end.empty()) std::memcpy(error->message + length, end.data(), end.size());
  error->message[length + end.size()] = '\0';
  error->code = status;
  return status;
}

// Throws what a C call reported. `what_failed` is put before the message when not empty. A code
// that this version does not define becomes FRT_ERR_INTERNAL, its number part of the text.  [any]
inline void check(frt_status status, const frt_error& error, std::string_view what_failed = {}) {
  if (status == FRT_OK) return;
  std::string text(what_failed);
  if (!text.empty()) text += ": ";
  const std::string_view message(error.message, ::strnlen(error.message, FRT_ERROR_CAPACITY));
  text += message;
  if (message.empty()) {
    text += status_text(status);
  } else if (!is_status(status)) {
    text += " (" + status_text(status) + ")";
  }
  throw Error(is_status(status) ? status : FRT_ERR_INTERNAL, text);
}

// The same for calls that give no frt_error.  [any]
inline void check(frt_status status, std::string_view what_failed) {
  if (status == FRT_OK) return;
  throw Error(is_status(status) ? status : FRT_ERR_INTERNAL,
              std::string(what_failed) + " failed: " + status_text(status));
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
  static constexpr uint32_t kBits[FRT_DTYPE_COUNT] = {0,  32, 16, 16, 8,  8,  4, 8, 8, 32,
                                                      32, 64, 64, 64, 16, 16, 8, 8, 4, 4};
  return dtype < FRT_DTYPE_COUNT ? kBits[dtype] : 0;
}

// "f32", "bf16", ...; "?" if unknown.  [any]
inline const char* dtype_name(frt_dtype dtype) noexcept {
  static constexpr const char* kNames[FRT_DTYPE_COUNT] = {
      "none", "f32", "bf16", "f16", "f8_e4m3", "f8_e5m2", "f4_e2m1", "i8",      "u8", "i32",
      "u32",  "i64", "u64",  "f64", "i16",     "u16",     "bool",    "f8_e8m0", "u4", "i4"};
  return dtype < FRT_DTYPE_COUNT ? kNames[dtype] : "?";
}

// "f32, bf16"; types that this build does not know by number.  [any]
inline std::string dtype_names(frt_dtype_set set) {
  std::string text;
  for (frt_dtype dtype = 0; dtype < 64; ++dtype) {
    if (!(set & FRT_DTYPE_BIT(dtype))) continue;
    text += (text.empty() ? "" : ", ") +
            (dtype < FRT_DTYPE_COUNT ? dtype_name(dtype) : "type " + std::to_string(dtype));
  }
  return text;
}

// "device", "host-pinned", "host"; "?" if unknown.  [any]
inline const char* space_name(frt_space space) noexcept {
  static constexpr const char* kNames[FRT_SPACE_COUNT] = {"device", "host-pinned", "host",
                                                          "shared"};
  return space < FRT_SPACE_COUNT ? kNames[space] : "?";
}

}  // namespace frt
