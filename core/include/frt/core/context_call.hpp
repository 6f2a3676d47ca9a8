// SPDX-License-Identifier: Apache-2.0
// context_call.hpp - what core's own libraries need to add calls to a context: state arenas and
// capsules. All work goes through exec_table(); here is only what the table keeps to itself, so
// that an added call is refused, reports and keeps streams as the table's functions do. It is no
// part of the SDK: hosts and plugins have no use for it.
#pragma once

#include <frt/exec.h>

namespace frt::core {

// One added call, for as long as it runs on the driver's thread. Calls nest. In builds with thread
// checks a second thread inside the context is noticed.
class ContextCall {
 public:
  // `name` is for messages. `stream`: which the call will submit to; null: none.  [hot]
  ContextCall(frt_context context, frt_stream stream, const char* name) noexcept;
  ~ContextCall() {
    if (entered_) leave();
  }
  ContextCall(const ContextCall&) = delete;
  ContextCall& operator=(const ContextCall&) = delete;

  // FRT_OK, or why the call is refused, with the context's last error filled: FRT_ERR_DEVICE_LOST,
  // FRT_ERR_INVALID_ARGUMENT (the stream is of another context), FRT_ERR_BAD_STATE (inside a record
  // callback; or another thread is inside, then without a text, which would be a race).  [hot]
  frt_status status() const noexcept { return status_; }
  // Throws it.  [driver]
  void check() const;

 private:
  void leave() noexcept;

  frt_context context_;
  frt_status status_ = FRT_OK;
  bool entered_ = false, clash_ = false;
};

// Fills the context's last error (printf style) and returns `status`. Only a text longer than the
// record allocates: the log gets the whole of it.  [hot]
[[gnu::format(printf, 3, 4)]] frt_status call_failed(frt_context context, frt_status status,
                                                     const char* format, ...) noexcept;

// FRT_OK, or why `call` cannot submit to `stream`, with the context's last error filled:
// FRT_ERR_INVALID_ARGUMENT (the stream is of another context), FRT_ERR_DEVICE_LOST.  [hot]
frt_status check_stream(frt_context context, frt_stream stream, const char* call) noexcept;

// A record callback runs: nothing may wait, be made, or change hands.  [hot]
bool is_recording(frt_context context) noexcept;

// Keeps a stream alive beyond its user's handle, so that it can still be waited for. Goes before
// the context is closed.  [driver]
class KeptStream {
 public:
  KeptStream() = default;
  ~KeptStream() { keep(nullptr); }
  KeptStream(const KeptStream&) = delete;
  KeptStream& operator=(const KeptStream&) = delete;

  // Keeps `stream` (null: none) in place of the one before. Allocates nothing.  [hot]
  void keep(frt_stream stream) noexcept;
  frt_stream get() const noexcept { return stream_; }

 private:
  frt_stream stream_ = nullptr;
};

}  // namespace frt::core
