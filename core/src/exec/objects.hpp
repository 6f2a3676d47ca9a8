// SPDX-License-Identifier: Apache-2.0
// objects.hpp - what stands behind the handles of frt/exec.h.
//
// In flight. Core never asks the backend "is this object still used?" with an event per
// submission. A stream remembers whether anything was submitted since its last sync (`busy`); a
// variant, plan or event remembers on which streams it was used, as a bit mask. Whoever must wait
// (eviction, release) syncs the busy streams of the mask. Both are plain stores on the hot path.
// Each stream has a bit of its own while there are fewer than 63; the rest share the last bit, so
// that waiting is at worst too careful.
//
// Counting. Buffers and streams are reference counted by the table; graphs internally, because a
// plan may outlive the user's handle. What is left when the count is zero is freed at once, or,
// inside a record callback where waiting is forbidden, when the capture or replay is over.
//
// Threads. Everything is written by the driver thread. Members that [any] functions read are
// constant after creation or atomic; with one writer a relaxed load and store is enough, so
// `bump` costs no locked instruction.
#pragma once

#include <frt/draft/graph.h>
#include <frt/draft/plan.h>
#include <frt/exec.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <frt/error.hpp>
#include <frt/table.hpp>
#include <memory>
#include <string>
#include <vector>

#include "exec/host_call.hpp"
#include "exec/kernel_registry.hpp"
#include "exec/variant_table.hpp"

namespace frt::core {

// Adds to a counter that only one thread writes.
inline void bump(std::atomic<uint64_t>& counter, uint64_t by = 1) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// The bit that all streams share which found no bit of their own.
inline constexpr uint32_t kSharedStreamBit = 63;

// A release that was asked for inside a record callback.
struct DeferredRelease {
  void (*release)(void* handle);
  void* handle;
};

}  // namespace frt::core

struct frt_stream_s {
  frt_context context = nullptr;
  frt_backend_stream backend = nullptr;
  std::string name;
  std::atomic<uint32_t> references{1};
  uint64_t bit = 0;                  // in masks of users
  bool busy = false;                 // something was submitted since the last sync
  bool capturing = false;            // inside graph_capture
  bool internal = false;             // core's own, never released by the user
  std::atomic<bool> exposed{false};  // somebody may submit behind our back
};

struct frt_context_s {
  frt_backend_v1 backend{};  // a copy, zero where the plugin's table ends
  frt_backend_device device = nullptr;
  std::string name, backend_id;
  frt_device_info device_info{};
  bool eager = false;

  bool ready = false;
  bool lost = false;               // FRT_ERR_DEVICE_LOST is for ever
  char lost_reason[256] = "";      // what the device said then; empty: nothing
  frt_stream capturing = nullptr;  // the stream that records now
  bool in_recipe = false;          // a replay of an eager context is in its record callback
  frt_error last_error{};

  std::vector<frt_stream> streams;       // all that exist, `internal` included
  frt_stream internal = nullptr;         // captures, made when first needed
  std::vector<frt_plan> plans;           // told when a variant goes
  std::vector<frt_buffer> capture_uses;  // buffers copied or filled by the recipe being recorded
  frt::core::HostCalls capture_calls;    // host functions that it calls
  frt::core::HostCalls eager_calls;      // submitted, not released yet
  std::vector<frt::core::DeferredRelease> deferred;
  std::vector<frt_backend_copy> batch;   // [FRT_COPY_BATCH_MAX] of buffer_copy_batch
  std::vector<frt_backend_copy> sorted;  // [FRT_COPY_BATCH_MAX] for its overlap check
  frt::core::KernelRegistry kernels;

  // Of buffer_copy_between, made when first needed.
  std::byte* staging = nullptr;            // pinned, for both sides
  frt_backend_event copy_order = nullptr;  // between two streams of this context

  std::atomic<uint64_t> captures{0}, captures_since_ready{0}, replays{0}, evictions{0};
  std::atomic<uint64_t> buffer_bytes[FRT_SPACE_COUNT]{};
  uint64_t buffers = 0, user_streams = 0, events = 0, graphs = 0,
           kernel_owners = 0;  // alive

  std::atomic<const void*> driver{nullptr};  // thread inside core, see DriverScope
};

struct frt_buffer_s {
  frt_context context = nullptr;
  frt_space space = FRT_SPACE_DEVICE;
  std::byte* pointer = nullptr;
  uint64_t bytes = 0;
  std::string name;
  std::atomic<uint32_t> references{1};
  frt_buffer parent = nullptr;  // view: its owner
  bool owned = false;           // allocated here
  void (*done)(void* user) = nullptr;
  void* user = nullptr;
};

struct frt_kernel_owner_s {
  frt_context context = nullptr;
  std::vector<frt::core::KernelEntry> kernels;
};

struct frt_event_s {
  frt_context context = nullptr;
  frt_backend_event backend = nullptr;
  uint32_t flags = 0;
  bool recorded = false;
  uint64_t stream_mask = 0;  // streams that recorded or waited
};

struct frt_graph_s {
  struct Binding {
    std::string name;
    bool required;
    frt_buffer buffer;  // retained, or null
  };

  frt_context context = nullptr;
  std::string name;
  uint32_t capacity = 0;
  uint32_t references = 1;        // the user and plans
  uint32_t unbound_required = 0;  // bindings that keep a replay from running
  bool captured = false;          // bindings are frozen
  std::vector<Binding> bindings;
  frt::core::VariantTable variants;
};

struct frt_plan_s {
  struct Node {
    frt_graph graph;  // referenced
    frt_shape_key key;
    frt_stream stream;                      // retained
    frt::core::Variant* variant = nullptr;  // while compiled
  };
  struct Edge {
    uint32_t node, dependency;
  };
  // One launch of a compiled plan that is not fused, in submission order.
  struct Step {
    uint32_t node;
    bool first_on_stream = false;      // waits for what the executing stream held
    bool last_on_stream = false;       // the executing stream waits for `done`
    std::vector<uint32_t> waits;       // steps on other streams it depends on
    frt_backend_event done = nullptr;  // recorded after it; null if nobody waits
  };

  frt_context context = nullptr;
  std::string name;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  bool compiled = false;
  char lost[192] = "";  // which variant went after compiling
  std::atomic<uint32_t> fused{0};
  frt_backend_exec exec = nullptr;    // fused
  std::vector<Step> steps;            // not fused
  frt_backend_event start = nullptr;  // not fused: what the executing stream held
  uint64_t stream_mask = 0;           // streams it was executed on
};

namespace frt::core {

// ---- errors --------------------------------------------------------------------------------

// Fills the context's last error (printf style) and returns `status`. Only a text longer than the
// record allocates: the log gets the whole of it.  [hot]
[[gnu::format(printf, 3, 4)]] frt_status fail(frt_context_s& context, frt_status status,
                                              const char* format, ...) noexcept;
frt_status vfail(frt_context_s& context, frt_status status, const char* format,
                 std::va_list arguments) noexcept;

// As fail(), for a code that the backend has just returned from `call`: adds the device's own words
// (frt_backend_v1::last_error), remembers a lost device. `peer`: the other context of a call on
// two devices, whose device may have the words. Returns FRT_ERR_INTERNAL for a code that no version
// defines.  [hot]
frt_status backend_failed(frt_context_s& context, frt_status status, const char* call,
                          const frt_context_s* peer = nullptr) noexcept;

// As fail(), for what `call` of the backend has just thrown, which no function of the ABI may. Only
// in a handler.  [hot]
frt_status backend_threw(frt_context_s& context, const char* call) noexcept;
// The same for the log alone: a call that ends something, or may come on any thread.  [any]
void backend_threw_late(const frt_context_s& context, const char* call) noexcept;

// FRT_OK, or what `call` of the backend reports or throws, as the context's last error. Costs
// nothing unless it throws.  [hot]
template <class Body>
frt_status call_backend(frt_context_s& context, const char* call, Body&& body) noexcept {
  try {
    const frt_status status = body();
    return status == FRT_OK ? FRT_OK : backend_failed(context, status, call);
  } catch (...) {
    return backend_threw(context, call);
  }
}

// The same for a call that ends something and cannot fail: what it throws goes to the log.  [any]
template <class Body>
void end_with_backend(const frt_context_s& context, const char* call, Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    backend_threw_late(context, call);
  }
}

// As fail(), for a `call` that comes after the device was lost.  [hot]
frt_status device_lost(frt_context_s& context, const char* call) noexcept;

// The device is lost; `reason` is what it said. Only the first loss counts.  [hot]
void remember_loss(frt_context_s& context, const char* reason) noexcept;

// "`call`: the device of context 'a' (backend 'b') is lost (...); open it again".  [any]
std::string lost_text(const frt_context_s& context, const std::string& call);

// Throws what a backend's setup call reported; remembers a lost device.  [setup]
void backend_check(frt_context_s& context, frt_status status, const frt_error& error,
                   const std::string& what);

// Runs `body(&error)`, a backend's setup call; throws what it reports or throws.  [setup]
template <class Body>
void setup_backend(frt_context_s& context, const char* call, const std::string& what, Body&& body) {
  frt_error reason{};
  const frt_status status =
      contain("backend '" + context.backend_id + "'", call, [&] { return body(&reason); });
  backend_check(context, status, reason, what);
}

// Throws FRT_ERR_INTERNAL if `call`, a backend's setup call that succeeded, made nothing.  [setup]
void require_made(const frt_context_s& context, const void* made, const char* call,
                  const std::string& what);

// FRT_OK, or why nothing can be submitted to `stream` now: wrong context, lost, capturing.  [hot]
frt_status check_submission(frt_context_s& context, frt_stream stream, const char* call) noexcept;

inline constexpr const char* kSecondThread =
    "another thread is inside this context; one at a time may drive it";

#ifdef FRT_THREAD_CHECKS
// Notices a second thread inside core. Nested calls of one thread (from a record callback) are
// fine. Relaxed atomics, so that it orders nothing and hides no race from the sanitizer.
enum class Entry : uint8_t { kEntered, kNested, kClash };
Entry enter_driver(frt_context_s& context) noexcept;
void leave_driver(frt_context_s& context) noexcept;  // after kEntered
#endif

// A call of this thread, in builds with thread checks.
class DriverScope {
 public:
#ifdef FRT_THREAD_CHECKS
  explicit DriverScope(frt_context_s& context) noexcept
      : context_(context), entry_(enter_driver(context)) {}
  ~DriverScope() {
    if (entry_ == Entry::kEntered) leave_driver(context_);
  }
  // FRT_ERR_BAD_STATE if another thread is inside. Writes no error text: that would be a race.
  frt_status clash() const noexcept {
    return entry_ == Entry::kClash ? FRT_ERR_BAD_STATE : FRT_OK;
  }
#else
  explicit DriverScope(frt_context_s&) noexcept {}
  frt_status clash() const noexcept {
    return FRT_OK;
  }
#endif
  DriverScope(const DriverScope&) = delete;
  DriverScope& operator=(const DriverScope&) = delete;

#ifdef FRT_THREAD_CHECKS
 private:
  frt_context_s& context_;
  Entry entry_;
#endif
};

// A record callback runs, at a capture or at a replay of an eager context: what it may use must not
// go.
inline bool in_callback(const frt_context_s& context) noexcept {
  return context.capturing || context.in_recipe;
}

// Runs the body of a [setup] call: refused while another thread is inside, when the device is lost
// and inside a record callback; exceptions become a code and a text.
template <class Body>
frt_status setup(frt_context_s& context, const char* call, frt_error* error, Body&& body) noexcept {
  DriverScope scope(context);
  if (frt_status status = scope.clash(); status != FRT_OK) {
    return set_error(error, status, kSecondThread);
  }
  return guard(error, [&] {
    if (context.lost) {
      throw Error(FRT_ERR_DEVICE_LOST, lost_text(context, call));
    }
    if (in_callback(context)) {
      throw Error(FRT_ERR_BAD_STATE,
                  std::string(call) + " is not allowed inside a record callback; do it before");
    }
    body();
  });
}

// ---- waiting -------------------------------------------------------------------------------

// Syncs the busy streams of `mask`.  [setup]
void wait_for_streams(frt_context_s& context, uint64_t mask) noexcept;

// Syncs every stream that may have work, known or not.  [setup]
void wait_for_all(frt_context_s& context) noexcept;

// True if a release has to be put off because a record callback runs; then it was noted.
bool deferred(frt_context_s& context, void (*release)(void*), void* handle) noexcept;
void run_deferred(frt_context_s& context) noexcept;

// Ends a call that replayed variants: runs what the callbacks of an eager context put off.  [hot]
inline void end_replay(frt_context_s& context) noexcept {
  if (context.eager && !context.in_recipe) run_deferred(context);
}

// ---- helpers across files ------------------------------------------------------------------

void retain(frt_buffer_s& buffer) noexcept;
void retain(frt_stream_s& stream) noexcept;
void drop_stream(frt_stream stream) noexcept;

// The device and the processor address one memory, FRT_SPACE_SHARED.
inline bool shares_memory(const frt_context_s& context) noexcept {
  return (context.device_info.flags & FRT_DEVICE_SHARED_MEMORY) != 0;
}

// FRT_OK, or that [offset, offset + bytes) is not inside `buffer`. `side`: "target", "source".
// [hot]
frt_status check_range(frt_context_s& context, const frt_buffer_s& buffer, uint64_t offset,
                       uint64_t bytes, const char* call, const char* side) noexcept;
bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) noexcept;  // [any]

// Gives back what buffer_copy_between made. Nothing is in flight.  [setup]
void free_copy_resources(frt_context_s& context) noexcept;

// The context's own stream.  [setup]
frt_stream_s& internal_stream(frt_context_s& context);

// Wakes nobody, waits for the variant's last replay, makes plans that use it stale, destroys it.
// [setup]
void drop_variant(frt_graph_s& graph, Variant& variant) noexcept;

// Submits one variant on `stream`: launch, or the recipe in an eager context.  [hot]
frt_status run_variant(frt_graph_s& graph, Variant& variant, frt_stream_s& stream) noexcept;

// Counts a use of the variant on `stream`.  [hot]
inline void use_variant(frt_graph_s& graph, Variant& variant, frt_stream_s& stream) noexcept {
  graph.variants.touch(variant);
  variant.stream_mask |= stream.bit;
  stream.busy = true;
}

// Destroys a graph whose last reference goes.  [setup]
void drop_graph(frt_graph graph) noexcept;

// "0x0001000200030004"
std::string key_text(frt_shape_key key);

}  // namespace frt::core
