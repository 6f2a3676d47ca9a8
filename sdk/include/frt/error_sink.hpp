// SPDX-License-Identifier: Apache-2.0
// frt/error_sink.hpp - where the full text of an error goes when it does not fit into its record.
//
// An frt_error holds 511 bytes. `set_error` (frt/error.hpp) truncates a longer text and writes the
// full text to the newest ErrorSink of its module. A plugin made with FRT_PLUGIN has a sink as long
// as it is open; that sink writes to the host's log. Core has a sink of its own. Header only.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace frt {

// The most bytes of one text that a sink gets.
inline constexpr std::size_t kLongestErrorText = std::size_t{64} << 10;

// Receives the full text of truncated errors, from construction to destruction.
class ErrorSink {
 public:
  // `text` is zero-terminated, and UTF-8 if the error's text was. Called under a lock: it must not
  // set an error of its own, and must not throw.  [any]
  using Write = void (*)(void* self, const char* text);

  // A null `write` receives nothing.  [setup]
  ErrorSink(Write write, void* self) noexcept : write_(write), self_(self) {
    if (!write_) return;
    const std::lock_guard lock(mutex_);
    older_ = newest_;
    newest_ = this;
  }
  ~ErrorSink() {
    if (!write_) return;
    const std::lock_guard lock(mutex_);
    ErrorSink** at = &newest_;
    while (*at != this) at = &(*at)->older_;
    *at = older_;
  }
  ErrorSink(const ErrorSink&) = delete;
  ErrorSink& operator=(const ErrorSink&) = delete;

  // Gives `text` to the newest sink. False if there is no sink, or no memory for the text.  [any]
  static bool send(std::string_view text) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      if (!newest_) return false;
      std::string full(text.substr(0, kLongestErrorText));
      if (full.size() < text.size()) {
        full += "... (" + std::to_string(text.size()) + " bytes in all)";
      }
      newest_->write_(newest_->self_, full.c_str());
      return true;
    } catch (...) {
      return false;
    }
  }

 private:
  static inline std::mutex mutex_;
  static inline ErrorSink* newest_ = nullptr;

  Write write_;
  void* self_;
  ErrorSink* older_ = nullptr;
};

}  // namespace frt
