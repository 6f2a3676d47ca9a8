// SPDX-License-Identifier: Apache-2.0
// Memory that runs out anywhere in a request: the request ends, with an answer or without, and the
// next one is served. Operator new of this binary fails once, at the n-th large allocation of any
// thread but the test's own, for every n. Small ones go on: a value of the JSON library allocates
// while it is destroyed, which programs keep a reserve for (cli/terminal/memory_reserve.hpp).
// Between the first and the last submission of a request to the engine small ones fail, too.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "service_world.hpp"

namespace {

constexpr int64_t kNever = -1;
constexpr std::size_t kLarge = 500;
std::atomic<int64_t> until_failure{kNever};
thread_local bool spared = false;
thread_local uint64_t made = 0;  // allocations of the thread

// Fails the n-th allocation that a thread makes when it has submitted some of its prompts and not
// all. It is known by the prompts: their vectors have a size of their own.
constexpr std::size_t kPromptTokens = 37, kPrompts = 4;
struct BetweenSubmissions {
  std::atomic<const frt::host::Engine*> engine{nullptr};  // null: none fails
  std::atomic<uint64_t> before{0};                        // what was submitted to it
  std::atomic<int64_t> until_failure{kNever};
  std::atomic<bool> failed{false};

  void arm(const frt::host::Engine& of, int64_t n) {
    before = of.stats().submitted;
    until_failure = n;
    failed = false;
    engine = &of;
  }
  bool fail(const frt::host::Engine& of) {
    const uint64_t count = of.stats().submitted - before;
    if (count == 0 || count == kPrompts || until_failure.fetch_sub(1) != 0) return false;
    failed = true;
    return true;
  }
} between;
thread_local bool submits = false, looks = false;

bool fails_between_submissions(std::size_t bytes) {
  if (bytes == kPromptTokens * sizeof(int32_t)) submits = true;
  const frt::host::Engine* const engine = between.engine;
  if (!engine || !submits || looks) return false;
  looks = true;
  const bool fails = between.fail(*engine);
  looks = false;
  return fails;
}

void* given(std::size_t bytes, std::size_t alignment) {
  ++made;
  if (!spared && bytes >= kLarge && until_failure.load(std::memory_order_relaxed) >= 0 &&
      until_failure.fetch_sub(1, std::memory_order_relaxed) == 0) {
    throw std::bad_alloc();
  }
  if (!spared && fails_between_submissions(bytes)) throw std::bad_alloc();
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (void* pointer = std::aligned_alloc(alignment, bytes > 0 ? bytes : alignment)) return pointer;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: GCC takes the halves of a pair for a mismatch where it sees only one of them.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return given(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return given(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return given(bytes, alignof(std::max_align_t));
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

using namespace frt::test;

int64_t allocations_of(const ServiceWorld& world, const std::string& bytes) {
  constexpr int64_t kMany = int64_t{1} << 40;
  until_failure = kMany;
  Peer(*world.server, bytes).read_all();
  return kMany - until_failure.exchange(kNever);
}

// Tells nobody.
class Silence : public frt::host::EngineListener {
 public:
  void on_start(const frt::host::PrefixDecision&, double) override {}
  void on_prefill(uint64_t, uint64_t) override {}
  frt::host::Next on_token(uint32_t, int32_t, float) override { return frt::host::Next::kContinue; }
  void on_finish(uint32_t, const frt::host::EngineResult&) override {}
  void on_error(frt_status, const std::string&) override {}
};

}  // namespace

TEST_CASE("a token costs the engine's thread no allocation on its way to the client") {
  spared = true;
  ServiceWorld world;
  // That thread's, from before `work` until the engine is idle again.
  const auto of_engine = [&](const auto& work) {
    const auto now = [&] {
      uint64_t count = 0;
      world.engine.call([&](frt::host::EngineAccess&) { count = made; });
      return count;
    };
    const uint64_t before = now();
    work();
    while (world.engine.stats().slots_used > 0) std::this_thread::yield();
    return now() - before;
  };
  const auto told = [&](int tokens) {
    return of_engine([&] {
      const std::string body =
          R"({"prompt": [1, 2, 3], "stream": true, "max_tokens": )" + std::to_string(tokens) + "}";
      Peer peer(*world.server, request("POST", "/v1/completions", body));
      REQUIRE(peer.read_all().find("data: [DONE]") != std::string::npos);
    });
  };
  const auto silent = [&](uint64_t tokens) {  // what a step costs the mock of a device
    return of_engine([&] {
      frt::host::EngineRequest asked;
      asked.prompt = {1, 2, 3};
      asked.max_new = tokens;
      asked.sampling.top_p = 1;
      asked.sampling.repetition_penalty = 1;
      const uint64_t before = world.engine.stats().generated_tokens;
      world.engine.submit(asked, std::make_shared<Silence>());
      while (world.engine.stats().generated_tokens < before + tokens) std::this_thread::yield();
    });
  };
  told(50);  // what grows once has grown
  CHECK(told(50) - told(5) == silent(50) - silent(5));
}

TEST_CASE("memory that runs out at any point of a request ends that request alone") {
  spared = true;
  const ServiceWorld world;
  for (const char* more : {"", R"(, "stream": true)"}) {
    const std::string bytes = completion(more);
    const int64_t count = allocations_of(world, bytes);
    REQUIRE(count > 10);
    int answered = 0;
    for (int64_t n = 0; n < count; ++n) {
      CAPTURE(n);
      until_failure = n;
      Peer peer(*world.server, bytes);
      answered += peer.read_all().starts_with("HTTP/1.1 200 ") ? 1 : 0;
      until_failure = kNever;
      const std::string after = Peer(*world.server, completion()).read_all();
      REQUIRE(after.starts_with("HTTP/1.1 200 "));
    }
    MESSAGE("allocations: ", count, "; answered nevertheless: ", answered);
  }
  const auto idle = [&] {
    return world.engine.stats().slots_used == 0 && world.engine.stats().queued == 0 &&
           world.server->counters().streams == 0;
  };
  for (int i = 0; i < 1000 && !idle(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(idle());
  CHECK(world.server->buffered() == 0);
}

TEST_CASE("memory that runs out between two submissions leaves no request running for nobody") {
  spared = true;
  const ServiceWorld world;
  frt::host::Engine& engine = world.served->engine;
  nlohmann::json prompts;
  for (std::size_t i = 0; i < kPrompts; ++i) prompts.push_back(std::vector<int>(kPromptTokens, 1));
  const std::string bytes = request("POST", "/v1/completions",
                                    R"({"prompt": )" + prompts.dump() + R"(, "max_tokens": 5})");
  const auto ended = [&] {
    const auto stats = engine.stats();
    return stats.ended_cancelled + stats.ended_length;
  };
  int64_t failures = 0;
  for (bool failed = true; failed;) {
    CAPTURE(failures);
    const auto before = engine.stats();
    HeldEngine held(engine);
    between.arm(engine, failures);
    Peer peer(*world.server, bytes);
    while (!between.failed && engine.stats().submitted < before.submitted + kPrompts) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    failed = between.failed;
    if (failed) CHECK(peer.read_all().starts_with("HTTP/1.1 500 "));
    held.release();
    if (!failed) CHECK(peer.read_all().starts_with("HTTP/1.1 200 "));
    between.engine = nullptr;
    const uint64_t submitted = engine.stats().submitted - before.submitted;
    for (int i = 0; i < 1000 && ended() < before.submitted + submitted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(engine.stats().ended_cancelled - before.ended_cancelled == (failed ? submitted : 0));
    failures += failed ? 1 : 0;
  }
  CHECK(failures >= 3);
}
