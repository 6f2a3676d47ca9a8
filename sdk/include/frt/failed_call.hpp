// SPDX-License-Identifier: Apache-2.0
// frt/failed_call.hpp - what a backend in C++ keeps for frt_backend_v1::last_error: the words of
// the last call that failed with a code alone. One per opened device. Header only.
#pragma once

#include <frt/base.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

namespace frt {

class FailedCall {
 public:
  // The most bytes of words that are kept, the zero behind them included.
  static constexpr std::size_t kCapacity = 256;

  // A call failed with `status`, and the device API said `words` (UTF-8). They take the place of
  // words that nobody asked for. Allocates nothing.  [any]
  void note(frt_status status, std::string_view words) noexcept {
    const std::lock_guard lock(mutex_);
    status_ = status;
    copy(words_, kCapacity, words);
  }

  // frt_backend_v1::last_error.  [any]
  frt_status take(char* text, uint64_t capacity) noexcept {
    if (!text || capacity == 0) return FRT_OK;
    const std::lock_guard lock(mutex_);
    const frt_status status = status_;
    copy(text, capacity, words_);
    status_ = FRT_OK;
    words_[0] = '\0';
    return status;
  }

 private:
  static void copy(char* to, uint64_t capacity, std::string_view text) noexcept {
    std::size_t length = text.size();
    if (length > capacity - 1) {
      length = static_cast<std::size_t>(capacity - 1);
      while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0u) == 0x80u) --length;
    }
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
  }

  std::mutex mutex_;
  frt_status status_ = FRT_OK;
  char words_[kCapacity] = "";
};

}  // namespace frt
