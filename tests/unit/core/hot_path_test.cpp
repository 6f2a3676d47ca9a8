// SPDX-License-Identifier: Apache-2.0
// Counts what [hot] functions do besides submitting: allocations and locks. Both are counted by
// defining the functions in this binary, in front of the C library's: operator new and malloc and
// its relatives, and the locking functions of POSIX threads. Sanitizers bring their own versions
// of the C functions, so under them only operator new is counted.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <frt/plugin.h>
#include <pthread.h>

#include <cstdlib>
#include <filesystem>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>
#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/state.hpp>
#include <frt/draft/graph.hpp>
#include <frt/draft/plan.hpp>
#include <frt/exec.hpp>
#include <new>
#include <vector>

#include "null_backend.hpp"

namespace {
uint64_t allocations = 0;
uint64_t frees = 0;  // of something
uint64_t locks = 0;
}  // namespace

#if FRT_BUILD_SANITIZER != FRT_SANITIZER_NONE
constexpr bool kInterposed = false;

// Not inlined, or the compiler sees free() meet operator new and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* pointer = std::malloc(bytes)) return pointer;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept {
  if (pointer) ++frees;
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept {
  if (pointer) ++frees;
  std::free(pointer);
}
#else
constexpr bool kInterposed = true;

// operator new of the standard library calls malloc.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* pointer, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* pointer);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* pointer, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(pointer, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void free(void* pointer) {
  if (pointer) ++frees;
  __libc_free(pointer);
}

#define FRT_COUNT_LOCK(name, type)                                                      \
  __attribute__((visibility("default"))) int name(type* lock) {                         \
    static const auto real = reinterpret_cast<int (*)(type*)>(dlsym(RTLD_NEXT, #name)); \
    ++locks;                                                                            \
    return real(lock);                                                                  \
  }
FRT_COUNT_LOCK(pthread_mutex_lock, pthread_mutex_t)
FRT_COUNT_LOCK(pthread_mutex_trylock, pthread_mutex_t)
FRT_COUNT_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
FRT_COUNT_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
FRT_COUNT_LOCK(pthread_spin_lock, pthread_spinlock_t)
}
#endif

namespace {

struct Counts {
  uint64_t allocations, locks, frees;
};

template <class Body>
Counts count(Body&& body) {
  const uint64_t allocations_before = allocations, locks_before = locks, frees_before = frees;
  for (int i = 0; i < 10000; ++i) body(i);
  return {allocations - allocations_before, locks - locks_before, frees - frees_before};
}

#define CHECK_FREE(...)                       \
  do {                                        \
    const Counts counts = count(__VA_ARGS__); \
    CHECK(counts.allocations == 0);           \
    CHECK(counts.locks == 0);                 \
    CHECK(counts.frees == 0);                 \
  } while (false)

}  // namespace

TEST_CASE("the counters count") {
  const Counts both = count([](int) { ::operator delete(::operator new(8)); });
  CHECK(both.allocations == 10000);
  CHECK(both.frees == 10000);
  if (!kInterposed) return;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const Counts counts = count([&](int) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
  });
  CHECK(counts.locks == 10000);
}

TEST_CASE("10,000 calls of every hot function allocate nothing and take no lock") {
  for (const bool eager : {false, true}) {
    frt::core::ContextOptions options;
    options.name = "null";
    options.eager = eager;
    const frt_context handle =
        frt::core::open_context(null_backend::table(), nullptr, 0, nullptr, options);
    {
      const frt::Context context(frt::core::exec_table(), handle);
      const frt::Stream stream = context.create_stream("s");
      const frt::Stream side = context.create_stream("side");
      const frt::Event event = context.create_event();
      const frt::Buffer a = context.alloc(FRT_SPACE_DEVICE, 4096, "a");
      const frt::Buffer b = context.alloc(FRT_SPACE_DEVICE, 4096, "b");
      frt::Graph graph = context.create_graph("g", 16);
      frt::GraphDraft bindings(frt::core::graph_draft(), graph);
      bindings.declare("a");
      bindings.bind("a", a);
      for (frt_shape_key key = 0; key < 16; ++key) {
        graph.capture(frt_key_pack(1, 2, 3, static_cast<uint16_t>(key)),
                      [&](const frt::Recorder& recorder) { recorder.fill(b, 0, 8, 0); });
      }
      const auto key = [](int i) { return frt_key_pack(1, 2, 3, static_cast<uint16_t>(i % 16)); };
      frt::Plan fused{frt::core::plan_draft(), context, "fused"};
      frt::Plan separate{frt::core::plan_draft(), context, "separate"};
      for (frt::Plan* plan : {&fused, &separate}) {
        const uint32_t first = plan->add(graph, key(1), stream);
        const uint32_t second = plan->add(graph, key(2), side);
        plan->after(second, first);
      }
      fused.compile();
      separate.compile(FRT_PLAN_NO_FUSE);
      CHECK(fused.fused() == !eager);
      const frt_region region{"r", FRT_REGION_FIXED, FRT_DTYPE_F32, 256, 1, 0};
      const frt_capsule_layout layout{sizeof(layout), 1, &region, 0, 0};
      const frt::State state(frt::core::state_table(), context, layout, 2, "state");
      const frt_region rows{"rows", FRT_REGION_ROWS, FRT_DTYPE_F32, 4, 4096, 1};
      const frt_capsule_layout in_pages{sizeof(in_pages), 1, &rows, 16, 0};
      const frt::State pages(frt::core::state_table(), context, in_pages, 2, "pages");
      std::vector<frt_copy> copies;
      for (uint64_t i = 0; i < 16; ++i) copies.push_back({a, (i * 5 % 16) * 64, b, i * 64, 64});
      context.ready();

      const frt_exec_v1& t = context.table();
      frt_status all = FRT_OK;
      const auto expect_ok = [&](frt_status status) { all |= status; };
      CHECK_FREE([&](int) { expect_ok(t.graph_replay(graph, key(3), stream)); });
      CHECK_FREE([&](int i) { expect_ok(t.graph_replay(graph, key(i), stream)); });
      CHECK_FREE([&](int i) { expect_ok(t.graph_has_variant(graph, key(i)) ? FRT_OK : -1); });
      CHECK_FREE([&](int) { expect_ok(frt::core::plan_draft()->execute(fused, stream)); });
      CHECK_FREE([&](int) { expect_ok(frt::core::plan_draft()->execute(separate, stream)); });
      CHECK_FREE([&](int) { expect_ok(t.buffer_copy(a, 0, b, 0, 64, stream)); });
      CHECK_FREE([&](int) { expect_ok(t.buffer_copy_batch(copies.data(), 16, stream)); });
      CHECK_FREE([&](int) { expect_ok(t.buffer_fill(a, 0, 64, 0, stream)); });
      CHECK_FREE([&](int) { expect_ok(t.event_record(event, stream)); });
      CHECK_FREE([&](int) { expect_ok(t.stream_wait(side, event)); });
      CHECK_FREE([&](int) { expect_ok(t.event_query(event)); });
      CHECK_FREE([&](int) {
        expect_ok(frt::core::state_table()->state_clear(state.handle(), 1, stream));
      });
      // A new page with every call, and the slot as new when it is full.
      CHECK_FREE([&](int i) {
        const frt_state_v1& states = *frt::core::state_table();
        const auto row = static_cast<uint64_t>(i % 256 * 16);
        if (row == 0) expect_ok(states.state_clear(pages.handle(), 1, stream));
        expect_ok(states.state_reserve(pages.handle(), 1, row, row + 16, stream));
        expect_ok(states.state_reserve(pages.handle(), 1, row + 15, row + 16, stream));
      });
      CHECK(all == FRT_OK);
      // Failing is not slow either.
      CHECK_FREE([&](int) { all |= t.graph_replay(graph, 99, stream); });
      CHECK(all == FRT_ERR_NO_VARIANT);
      all = FRT_OK;
      CHECK_FREE([&](int) {
        all |= frt::core::state_table()->state_reserve(pages.handle(), 1, 0, 5000, stream);
      });
      CHECK(all == FRT_ERR_OUT_OF_RANGE);
      CHECK(context.counters().captures_since_ready == 0);
    }
    frt::core::close_context(handle);
  }
}

TEST_CASE("10,000 restores and forks allocate nothing, take no lock and capture nothing") {
  frt::core::ContextOptions options;
  options.name = "null";
  const frt_context handle =
      frt::core::open_context(null_backend::table(), nullptr, 0, nullptr, options);
  for (const uint32_t page_rows : {0u, 16u}) {
    const frt::Context context(frt::core::exec_table(), handle);
    const frt::Stream stream = context.create_stream("s");
    const frt::Stream side = context.create_stream("side");
    const frt_region regions[] = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 100000, 1, 0},
                                  {"keys", FRT_REGION_ROWS, FRT_DTYPE_F32, 64, 4096, 0},
                                  {"draft", FRT_REGION_ROWS, FRT_DTYPE_F32, 64, 4096, 1}};
    const frt_capsule_layout layout{sizeof(layout), 3, regions, page_rows, 0};
    const frt::State state(frt::core::state_table(), context, layout, 4, "state");
    const frt::Capsules capsules(frt::core::capsules_table(), context, state.handle());
    state.reserve(0, 0, 4096, stream);
    context.ready();
    const frt_capsules_v1& verbs = capsules.table();
    const uint32_t slots[] = {1, 2, 3};
    frt_status all = FRT_OK;
    for (const frt_space space : {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED}) {
      const frt::Capsule capsule = capsules.snapshot(0, 2001, space, stream);
      CHECK_FREE([&](int) { all |= verbs.restore(capsule.handle(), 1, stream.handle()); });
      CHECK_FREE([&](int) { all |= verbs.restore(capsule.handle(), 1, side.handle()); });
      CHECK_FREE([&](int) { all |= verbs.fork(capsule.handle(), slots, 3, stream.handle()); });
      CHECK_FREE([&](int) { all |= verbs.query(capsule.handle()); });
    }
    CHECK_FREE([&](int i) {
      const auto boundary = static_cast<uint64_t>(i % 4096);
      all |= verbs.fork_slot(state.handle(), 0, boundary, slots, 3, stream.handle());
    });
    CHECK(all == FRT_OK);
    CHECK(context.counters().captures_since_ready == 0);
  }
  frt::core::close_context(handle);
}

TEST_CASE("the last slot that remembers another build forgets it without freeing") {
  frt::core::ContextOptions options;
  options.name = "null";
  const frt_context handle =
      frt::core::open_context(null_backend::table(), nullptr, 0, nullptr, options);
  char folder[] = "/tmp/frt-hot-path-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  {
    const frt::Context context(frt::core::exec_table(), handle);
    const frt::Stream stream = context.create_stream("s");
    const frt_region region{"r", FRT_REGION_FIXED, FRT_DTYPE_F32, 256, 1, 0};
    const frt_capsule_layout layout{sizeof(layout), 1, &region, 0, 0};
    const frt::State before(frt::core::state_table(), context, layout, 1, "before");
    const frt::State after(frt::core::state_table(), context, layout, 2, "after");
    const frt::Capsules old(frt::core::capsules_table(), context, before.handle());
    const frt::Capsules now(frt::core::capsules_table(), context, after.handle());
    old.bind(std::vector<frt_fingerprint_field>{{FRT_FINGERPRINT_BUILD "plugin.file", "aa11"}});
    now.bind(std::vector<frt_fingerprint_field>{{FRT_FINGERPRINT_BUILD "plugin.file", "cc33"}});
    (void)old.fingerprint();
    (void)now.fingerprint();
    {
      const frt::Capsule kept = old.snapshot(0, 0, FRT_SPACE_HOST, stream);
      kept.sync();
      kept.save(folder, "c", "");
    }
    const frt::Capsule clean = now.snapshot(1, 0, FRT_SPACE_DEVICE, stream);
    const auto remember = [&] {
      const frt::Capsule loaded = now.load(folder, "c", FRT_SPACE_HOST);
      REQUIRE_FALSE(loaded.other_build().empty());
      loaded.restore(0, stream);
    };
    frt_status all = FRT_OK;
    remember();
    CHECK_FREE(
        [&](int) { all |= frt::core::state_table()->state_clear(after.handle(), 0, stream); });
    remember();
    CHECK_FREE([&](int) { all |= now.table().restore(clean.handle(), 0, stream); });
    CHECK(all == FRT_OK);
  }
  frt::core::close_context(handle);
  std::filesystem::remove_all(folder);
}
