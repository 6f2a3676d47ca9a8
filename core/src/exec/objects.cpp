// SPDX-License-Identifier: Apache-2.0
#include "exec/objects.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <frt/text.hpp>

namespace frt::core {

// ---- errors --------------------------------------------------------------------------------

frt_status fail(frt_context_s& context, frt_status status, const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  vfail(context, status, format, arguments);
  va_end(arguments);
  return status;
}

frt_status vfail(frt_context_s& context, frt_status status, const char* format,
                 std::va_list arguments) noexcept {
  char text[2 * FRT_ERROR_CAPACITY];  // names, and one text that came in a record
  std::vsnprintf(text, sizeof(text), format, arguments);
  return set_error(&context.last_error, status, text);
}

namespace {

using Words = char[sizeof(frt_context_s::lost_reason)];

// Words come from a plugin: what is no text that prints becomes '?'.
void clean(Words& words) noexcept {
  words[sizeof(words) - 1] = '\0';
  for (char* at = words; *at;) {
    const Utf8Step step = utf8_step(at);
    if (step.kind == Utf8Step::kValid && prints(step.character)) {
      at += step.bytes;
    } else {
      *at++ = '?';
    }
  }
}

// The device's own words for `status`, the code that a call has just returned; else empty.
void ask_words(const frt_context_s& context, frt_status status, Words& words) noexcept {
  words[0] = '\0';
  if (!context.backend.last_error) return;
  bool own = false;
  try {
    own = context.backend.last_error(context.device, words, sizeof(words)) == status;
  } catch (...) {
    own = false;  // a broken backend: the code is known without its words
  }
  if (!own) words[0] = '\0';
  clean(words);
}

}  // namespace

void remember_loss(frt_context_s& context, const char* reason) noexcept {
  if (context.lost) return;
  context.lost = true;
  std::snprintf(context.lost_reason, sizeof(Words), "%.*s", int{sizeof(Words) - 1}, reason);
  clean(context.lost_reason);
}

std::string lost_text(const frt_context_s& context, const std::string& call) {
  const std::string reason = context.lost_reason;
  return call + ": the device of context '" + context.name + "' (backend '" + context.backend_id +
         "') is lost" + (reason.empty() ? "" : " (" + reason + ")") + "; open it again";
}

frt_status device_lost(frt_context_s& context, const char* call) noexcept {
  const char* reason = context.lost_reason;
  return fail(context, FRT_ERR_DEVICE_LOST,
              "%s: the device of context '%s' (backend '%s') is lost%s%s%s; open it again", call,
              context.name.c_str(), context.backend_id.c_str(), *reason ? " (" : "", reason,
              *reason ? ")" : "");
}

frt_status backend_failed(frt_context_s& context, frt_status status, const char* call,
                          const frt_context_s* peer) noexcept {
  Words words;
  ask_words(context, status, words);
  if (peer && !*words) ask_words(*peer, status, words);
  if (status == FRT_ERR_DEVICE_LOST) {
    remember_loss(context, words);
    return device_lost(context, call);
  }
  if (!is_status(status)) {
    return fail(context, FRT_ERR_INTERNAL,
                "%s: the device of context '%s' (backend '%s') reported status %d, which ABI %d.%d "
                "does not define%s%s",
                call, context.name.c_str(), context.backend_id.c_str(), status, FRT_ABI_MAJOR,
                FRT_ABI_MINOR, *words ? ": " : "", words);
  }
  return fail(context, status, "%s: the device of context '%s' (backend '%s') reported %s (%d)%s%s",
              call, context.name.c_str(), context.backend_id.c_str(), status_name(status), status,
              *words ? ": " : "", words);
}

namespace {

using Thrown = char[2 * FRT_ERROR_CAPACITY];

// What the handler that calls it has caught, in words.
void describe_thrown(const frt_context_s& context, const char* call, Thrown& text) noexcept {
  const auto describe = [&](const char* what) {
    std::snprintf(text, sizeof(text),
                  "%.100s: the device of context '%.100s' (backend '%.100s') threw across the ABI: "
                  "%.400s; ask its author for a fix",
                  call, context.name.c_str(), context.backend_id.c_str(), what);
  };
  try {
    throw;
  } catch (const std::exception& error) {
    describe(error.what());
  } catch (...) {
    describe("an exception of unknown type");
  }
}

}  // namespace

frt_status backend_threw(frt_context_s& context, const char* call) noexcept {
  Thrown text;
  describe_thrown(context, call, text);
  return fail(context, FRT_ERR_INTERNAL, "%s", text);
}

void backend_threw_late(const frt_context_s& context, const char* call) noexcept {
  Thrown text;
  describe_thrown(context, call, text);
  ErrorSink::send(text);
}

void backend_check(frt_context_s& context, frt_status status, const frt_error& error,
                   const std::string& what) {
  if (status == FRT_OK) return;  // what was made is not kept yet: nothing may throw
  if (status == FRT_ERR_DEVICE_LOST) remember_loss(context, error.message);
  check(status, error, "backend '" + context.backend_id + "': " + what);
}

void require_made(const frt_context_s& context, const void* made, const char* call,
                  const std::string& what) {
  if (made) return;
  throw Error(FRT_ERR_INTERNAL, "backend '" + context.backend_id + "': " + what + ": " + call +
                                    " reported success but made nothing; ask its author for a fix");
}

frt_status check_submission(frt_context_s& context, frt_stream stream, const char* call) noexcept {
  if (!stream || stream->context != &context) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT, "%s: the stream is %s", call,
                stream ? "of another context" : "null");
  }
  if (context.lost) return device_lost(context, call);
  return FRT_OK;
}

#ifdef FRT_THREAD_CHECKS
namespace {
thread_local char this_thread;
}

Entry enter_driver(frt_context_s& context) noexcept {
  const void* inside = nullptr;
  if (context.driver.compare_exchange_strong(inside, &this_thread, std::memory_order_relaxed)) {
    return Entry::kEntered;
  }
  return inside == &this_thread ? Entry::kNested : Entry::kClash;
}

void leave_driver(frt_context_s& context) noexcept {
  context.driver.store(nullptr, std::memory_order_relaxed);
}
#endif

// ---- waiting -------------------------------------------------------------------------------

namespace {

void wait_for_stream(frt_context_s& context, frt_stream_s& stream) noexcept {
  // A stream that records holds no work, and syncing it would spoil the recording.
  if (context.lost || stream.capturing) return;
  call_backend(context, "waiting for a stream",
               [&] { return context.backend.stream_sync(stream.backend); });
  stream.busy = false;
}

}  // namespace

void wait_for_streams(frt_context_s& context, uint64_t mask) noexcept {
  for (frt_stream stream : context.streams) {
    if ((stream->bit & mask) && stream->busy) wait_for_stream(context, *stream);
  }
}

void wait_for_all(frt_context_s& context) noexcept {
  for (frt_stream stream : context.streams) {
    if (stream->busy || stream->exposed.load(std::memory_order_relaxed)) {
      wait_for_stream(context, *stream);
    }
  }
}

bool deferred(frt_context_s& context, void (*release)(void*), void* handle) noexcept {
  if (!in_callback(context)) return false;
  try {
    context.deferred.push_back({release, handle});
  } catch (const std::bad_alloc&) {
    fail(context, FRT_ERR_OUT_OF_MEMORY, "a release inside a record callback is lost");
  }
  return true;
}

void run_deferred(frt_context_s& context) noexcept {
  std::vector<DeferredRelease> releases;
  releases.swap(context.deferred);
  for (const DeferredRelease& entry : releases) entry.release(entry.handle);
}

std::string key_text(frt_shape_key key) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%016" PRIx64, key);
  return text;
}

}  // namespace frt::core
