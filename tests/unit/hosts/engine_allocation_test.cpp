// SPDX-License-Identifier: Apache-2.0
// Once requests write, the engine's thread allocates nothing until the first of them ends: a step
// is made of what was set aside. Every operator new of this binary that the thread calls is counted
// while it is watched.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <new>

#include "rule_grammar.hpp"

namespace {

thread_local bool watched = false;
std::atomic<uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (watched) allocations.fetch_add(1, std::memory_order_relaxed);
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (void* pointer = std::aligned_alloc(alignment, bytes > 0 ? bytes : alignment)) return pointer;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: GCC takes the halves of a pair for a mismatch where it sees only one of them.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return counted(bytes, alignof(std::max_align_t));
} catch (const std::bad_alloc&) {
  return nullptr;
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}

namespace {

using frt::host::Engine;
using frt::host::EngineResult;
using frt::host::Next;
using frt::host::PrefixDecision;

// Watches the engine's thread from token `first` to token `last` of this request.
class Watcher final : public frt::host::EngineListener {
 public:
  Watcher(uint64_t first, uint64_t last) : first_(first), last_(last) {}
  void on_start(const PrefixDecision&, double) override {}
  void on_prefill(uint64_t, uint64_t) override {}
  Next on_token(uint32_t, int32_t, float) override {
    ++tokens_;
    if (first_ > 0 && tokens_ == first_) watched = true;
    if (tokens_ == last_) watched = false;
    return Next::kContinue;
  }
  void on_finish(uint32_t, const EngineResult& result) override {
    over.set_value(result.generated);
  }
  void on_error(frt_status, const std::string&) override { over.set_value(0); }

  std::promise<uint64_t> over;

 private:
  uint64_t first_, last_, tokens_ = 0;
};

}  // namespace

// The first of a slot, too: such memory may be had only when the device is still.
TEST_CASE("likeliest tokens are told from pinned memory that is set aside at load") {
  frt::test::EngineWorld world("max_context = 128\nslots = 2\npage_rows = 64");
  const auto pinned = [&] {
    frt_counters counters{};
    counters.struct_size = sizeof(counters);
    const frt::Context& context = world.model.context();
    REQUIRE(context.table().context_counters(context.handle(), &counters) == FRT_OK);
    return counters.buffer_bytes[FRT_SPACE_HOST_PINNED];
  };
  Engine engine(world.model, nullptr, frt::test::engine_options());
  const uint64_t before = pinned();
  frt::host::EngineRequest told_top = frt::test::asking(frt::test::some_tokens(30, 1), 8);
  told_top.top_tokens = 20;
  told_top.choices = 2;
  const auto told = frt::test::submit(engine, told_top);
  told->wait(2);
  CHECK(told->choices[0].top.size() == 8);
  CHECK(told->choices[1].top.size() == 8);
  CHECK(pinned() == before);
}

// Rounds of drafts, and plain steps, of four requests: one whose likeliest tokens are told, one
// with a bias, one that follows a grammar, and one that is sampled. Neither memory of the host nor
// of the device is taken, and no graph is captured.
TEST_CASE("steps of several requests that write allocate and capture nothing") {
  for (const auto speculation : {frt::host::Drafting::kOn, frt::host::Drafting::kOff}) {
    allocations = 0;
    frt::test::GrammarWorld world("max_context = 512\nslots = 4\nmax_batch = 4\npage_rows = 64");
    const auto counters = [&] {
      frt_counters now{};
      now.struct_size = sizeof(now);
      const frt::Context& context = world.model.context();
      REQUIRE(context.table().context_counters(context.handle(), &now) == FRT_OK);
      return now;
    };
    frt::host::EngineOptions options = frt::test::engine_options();
    options.session.speculation = speculation;
    Engine engine(world.model, nullptr, options);
    const auto first = std::make_shared<Watcher>(0, 0);
    const auto second = std::make_shared<Watcher>(50, 150);  // the others are writing by then
    frt::host::EngineRequest told_top = frt::test::asking(frt::test::some_tokens(30, 1), 300);
    told_top.top_tokens = 20;
    engine.submit(told_top, first);
    frt::host::EngineRequest biased = frt::test::asking(frt::test::some_tokens(30, 2), 200);
    for (int32_t id = 0; id < 100; ++id) biased.bias.push_back({5 * id, 0.25f});
    engine.submit(biased, second);
    const auto third = std::make_shared<Watcher>(0, 0), fourth = std::make_shared<Watcher>(0, 0);
    engine.submit(world.following(frt::test::some_tokens(30, 3), 300,
                                  frt::test::rule_text(400, 400, 0, 1'000'000, true)),
                  third);
    frt::host::EngineRequest sampled = frt::test::asking(frt::test::some_tokens(30, 4), 300);
    sampled.sampling.temperature = 0.8f;
    engine.submit(sampled, fourth);
    const frt_counters before = counters();
    CHECK(first->over.get_future().get() == 300);
    CHECK(second->over.get_future().get() == 200);
    CHECK(third->over.get_future().get() == 300);
    CHECK(fourth->over.get_future().get() == 300);
    CHECK(allocations.load() == 0);
    const frt_counters after = counters();
    CHECK(after.captures == before.captures);
    for (std::size_t space = 0; space < std::size(after.buffer_bytes); ++space) {
      CHECK(after.buffer_bytes[space] == before.buffer_bytes[space]);
    }
    CHECK((engine.stats().draft_rounds > 0) == (speculation == frt::host::Drafting::kOn));
  }
}
