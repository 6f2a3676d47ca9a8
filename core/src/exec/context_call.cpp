// SPDX-License-Identifier: Apache-2.0
#include <frt/core/context_call.hpp>

#include <cstdarg>

#include "exec/objects.hpp"

namespace frt::core {

ContextCall::ContextCall(frt_context context, frt_stream stream, const char* name) noexcept
    : context_(context) {
#ifdef FRT_THREAD_CHECKS
  const Entry entry = enter_driver(*context);
  entered_ = entry == Entry::kEntered;
  clash_ = entry == Entry::kClash;
  if (clash_) {
    status_ = FRT_ERR_BAD_STATE;
    return;
  }
#endif
  if (stream) {
    status_ = check_submission(*context, stream, name);
  } else if (context->lost) {
    status_ = device_lost(*context, name);
  }
  if (status_ == FRT_OK && in_callback(*context)) {
    status_ = fail(*context, FRT_ERR_BAD_STATE,
                   "%s: not allowed inside a record callback; do it before", name);
  }
}

void ContextCall::leave() noexcept {
#ifdef FRT_THREAD_CHECKS
  leave_driver(*context_);
#endif
}

void ContextCall::check() const {
  if (clash_) throw Error(status_, kSecondThread);
  frt::check(status_, context_->last_error);
}

frt_status call_failed(frt_context context, frt_status status, const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  vfail(*context, status, format, arguments);
  va_end(arguments);
  return status;
}

frt_status check_stream(frt_context context, frt_stream stream, const char* call) noexcept {
  return check_submission(*context, stream, call);
}

bool is_recording(frt_context context) noexcept {
  return in_callback(*context);
}

void KeptStream::keep(frt_stream stream) noexcept {
  if (stream) retain(*stream);
  const auto drop = [](void* handle) { drop_stream(static_cast<frt_stream>(handle)); };
  if (stream_ && !deferred(*stream_->context, drop, stream_)) drop(stream_);
  stream_ = stream;
}

}  // namespace frt::core
