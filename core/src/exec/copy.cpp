// SPDX-License-Identifier: Apache-2.0
// Copies and fills. All ranges are checked before anything is submitted, with comparisons that
// cannot overflow: `bytes <= size && offset <= size - bytes`.
//
// Overlap is decided by address, whatever the space: device interfaces give every space its own
// part of one address range. Within one copy, target and source must not overlap; within a batch,
// no target may overlap another target or any source (sources may share: one saved state into
// several slots). A batch whose targets ascend and whose targets and sources lie apart as a whole,
// which is what slot copies look like, is proven clean in one pass; otherwise the targets are
// sorted into memory that was set aside when the context was opened.
#include <algorithm>
#include <span>

#include "exec/functions.hpp"
#include "exec/objects.hpp"

namespace frt::core {
namespace {

uintptr_t begin_of(const void* pointer) noexcept {
  return reinterpret_cast<uintptr_t>(pointer);
}

}  // namespace

bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) noexcept {
  return begin_of(a) < begin_of(b) + b_bytes && begin_of(b) < begin_of(a) + a_bytes;
}

frt_status check_range(frt_context_s& context, const frt_buffer_s& buffer, uint64_t offset,
                       uint64_t bytes, const char* call, const char* side) noexcept {
  if (bytes <= buffer.bytes && offset <= buffer.bytes - bytes) return FRT_OK;
  return fail(context, FRT_ERR_OUT_OF_RANGE,
              "%s: %s: %llu bytes at %llu of buffer '%s', which has %llu", call, side,
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(offset),
              buffer.name.c_str(), static_cast<unsigned long long>(buffer.bytes));
}

namespace {

// Checks one copy and translates it for the backend.
frt_status prepare(frt_context_s& context, const frt_copy& copy, const char* call,
                   frt_backend_copy* out) noexcept {
  if (!copy.target || !copy.source || copy.target->context != &context ||
      copy.source->context != &context) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT,
                "%s: a buffer is null or of another context than the stream", call);
  }
  frt_status status =
      check_range(context, *copy.target, copy.target_offset, copy.bytes, call, "target");
  if (status != FRT_OK) return status;
  status = check_range(context, *copy.source, copy.source_offset, copy.bytes, call, "source");
  if (status != FRT_OK) return status;
  out->target = copy.target->pointer + copy.target_offset;
  out->source = copy.source->pointer + copy.source_offset;
  out->bytes = copy.bytes;
  out->target_space = copy.target->space;
  out->source_space = copy.source->space;
  if (copy.bytes && overlap(out->target, out->bytes, out->source, out->bytes)) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT,
                "%s: target '%s' and source '%s' overlap; copy through a third buffer", call,
                copy.target->name.c_str(), copy.source->name.c_str());
  }
  return FRT_OK;
}

bool clean_at_a_glance(std::span<const frt_backend_copy> copies) noexcept {
  uintptr_t target_low = UINTPTR_MAX, target_high = 0, source_low = UINTPTR_MAX, source_high = 0;
  for (const frt_backend_copy& copy : copies) {
    const uintptr_t target = begin_of(copy.target), source = begin_of(copy.source);
    if (target < target_high) return false;
    target_low = std::min(target_low, target);
    target_high = target + copy.bytes;
    source_low = std::min(source_low, source);
    source_high = std::max(source_high, source + copy.bytes);
  }
  return target_high <= source_low || source_high <= target_low;
}

bool disjoint(std::span<const frt_backend_copy> copies,
              std::span<frt_backend_copy> scratch) noexcept {
  if (clean_at_a_glance(copies)) return true;
  const auto sorted = scratch.first(copies.size());
  std::copy(copies.begin(), copies.end(), sorted.begin());
  const auto by_target = [](const frt_backend_copy& a, const frt_backend_copy& b) {
    return begin_of(a.target) < begin_of(b.target);
  };
  std::sort(sorted.begin(), sorted.end(), by_target);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (begin_of(sorted[i - 1].target) + sorted[i - 1].bytes > begin_of(sorted[i].target)) {
      return false;
    }
  }
  // The targets are disjoint now, so only the last one that starts before the source's end can
  // reach into the source.
  for (const frt_backend_copy& copy : copies) {
    const uintptr_t end = begin_of(copy.source) + copy.bytes;
    auto next = std::partition_point(
        sorted.begin(), sorted.end(),
        [end](const frt_backend_copy& other) { return begin_of(other.target) < end; });
    if (next == sorted.begin()) continue;
    --next;
    if (begin_of(next->target) + next->bytes > begin_of(copy.source)) return false;
  }
  return true;
}

// Keeps buffers that a recipe copies or fills alive as long as its variant.
frt_status note_use(frt_context_s& context, frt_stream_s& stream, frt_buffer buffer) noexcept {
  if (!stream.capturing) return FRT_OK;
  auto& uses = context.capture_uses;
  if (std::find(uses.begin(), uses.end(), buffer) != uses.end()) return FRT_OK;
  try {
    uses.push_back(buffer);
  } catch (const std::bad_alloc&) {
    return fail(context, FRT_ERR_OUT_OF_MEMORY, "recording: the host is out of memory");
  }
  retain(*buffer);
  return FRT_OK;
}

frt_status submit(frt_context_s& context, frt_stream_s& stream,
                  std::span<const frt_backend_copy> copies, const char* call) noexcept {
  if (copies.empty()) return FRT_OK;
  stream.busy = true;
  return call_backend(context, call, [&] {
    return context.backend.copy(stream.backend, copies.data(), copies.size());
  });
}

}  // namespace

namespace exec {

frt_status buffer_copy(frt_buffer target, uint64_t target_offset, frt_buffer source,
                       uint64_t source_offset, uint64_t bytes, frt_stream stream) noexcept {
  if (!stream) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *stream->context;
  DriverScope scope(context);
  frt_status status = scope.clash();
  if (status != FRT_OK) return status;
  status = check_submission(context, stream, "buffer_copy");
  if (status != FRT_OK) return status;
  frt_backend_copy copy;
  status =
      prepare(context, {target, target_offset, source, source_offset, bytes}, "buffer_copy", &copy);
  if (status != FRT_OK || bytes == 0) return status;
  if ((status = note_use(context, *stream, target)) != FRT_OK) return status;
  if ((status = note_use(context, *stream, source)) != FRT_OK) return status;
  return submit(context, *stream, {&copy, 1}, "buffer_copy");
}

frt_status buffer_copy_batch(const frt_copy* copies, uint64_t count, frt_stream stream) noexcept {
  if (!stream) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *stream->context;
  DriverScope scope(context);
  frt_status status = scope.clash();
  if (status != FRT_OK) return status;
  status = check_submission(context, stream, "buffer_copy_batch");
  if (status != FRT_OK) return status;
  if (count > FRT_COPY_BATCH_MAX || (count && !copies)) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT,
                "buffer_copy_batch: %llu copies, allowed are 0 to %u, and not from null",
                static_cast<unsigned long long>(count), FRT_COPY_BATCH_MAX);
  }
  std::size_t used = 0;
  for (const frt_copy& copy : std::span(copies, count)) {
    status = prepare(context, copy, "buffer_copy_batch", &context.batch[used]);
    if (status != FRT_OK) return status;
    if (copy.bytes) ++used;
  }
  const std::span<const frt_backend_copy> batch(context.batch.data(), used);
  if (!disjoint(batch, context.sorted)) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT,
                "buffer_copy_batch: a target overlaps another target or a source of the batch");
  }
  if (stream->capturing) {
    for (const frt_copy& copy : std::span(copies, count)) {
      if ((status = note_use(context, *stream, copy.target)) != FRT_OK) return status;
      if ((status = note_use(context, *stream, copy.source)) != FRT_OK) return status;
    }
  }
  return submit(context, *stream, batch, "buffer_copy_batch");
}

frt_status buffer_fill(frt_buffer buffer, uint64_t offset, uint64_t bytes, uint8_t value,
                       frt_stream stream) noexcept {
  if (!stream) return FRT_ERR_INVALID_ARGUMENT;
  frt_context_s& context = *stream->context;
  DriverScope scope(context);
  frt_status status = scope.clash();
  if (status != FRT_OK) return status;
  status = check_submission(context, stream, "buffer_fill");
  if (status != FRT_OK) return status;
  if (!buffer || buffer->context != &context) {
    return fail(context, FRT_ERR_INVALID_ARGUMENT,
                "buffer_fill: the buffer is null or of another context than the stream");
  }
  status = check_range(context, *buffer, offset, bytes, "buffer_fill", "target");
  if (status != FRT_OK || bytes == 0) return status;
  if ((status = note_use(context, *stream, buffer)) != FRT_OK) return status;
  stream->busy = true;
  return call_backend(context, "buffer_fill", [&] {
    return context.backend.fill(stream->backend, buffer->pointer + offset, buffer->space, bytes,
                                value);
  });
}

}  // namespace exec
}  // namespace frt::core
