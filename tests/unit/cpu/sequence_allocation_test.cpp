// SPDX-License-Identifier: Apache-2.0
// Replays of the sequence operators allocate nothing. Every operator new of this binary is counted.
#include <doctest/doctest.h>
#include <frt/ops/attention.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/sample.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

#include "runtime_tools.hpp"
#include "sequence_tools.hpp"

namespace {

std::atomic<uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
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

using namespace frt::cpu_test;

namespace {

// Captures one call and counts what ten launches of it allocate.
template <class Args>
uint64_t allocations_of(CpuDevice& device, const char* name, Args args) {
  args.struct_size = sizeof(args);
  const frt_backend_v1& backend = device.backend();
  const ExecHandle exec = capture(device, device.stream(), [&] {
    const frt_kernel& kernel = device.kernel(name).kernel;
    frt_error error{};
    frt::check(kernel.launch(kernel.self, device.stream(), &args, &error), error);
  });
  frt_status status = backend.exec_launch(exec, device.stream());
  REQUIRE(backend.stream_sync(device.stream()) == FRT_OK);
  const uint64_t before = allocations.load();
  for (int i = 0; i < 10; ++i) {
    if (status == FRT_OK) status = backend.exec_launch(exec, device.stream());
  }
  const frt_status synced = backend.stream_sync(device.stream());
  const uint64_t after = allocations.load();
  CHECK(status == FRT_OK);
  CHECK(synced == FRT_OK);
  return after - before;
}

}  // namespace

TEST_CASE("attention, delta rule and sampling replay without allocating, for decode and prefill") {
  CpuDevice device({.threads = 2});
  Random random(1);
  for (const int32_t rows : {1, 40}) {
    const Batch batch = one_sequence(rows, rows, 300);
    const auto n = static_cast<std::size_t>(rows);
    Array q = random.array(FRT_DTYPE_BF16, n * 4 * 32), y(FRT_DTYPE_BF16, q.size());
    Array keys = random.array(FRT_DTYPE_BF16, 400 * 2 * 32);
    frt_attention_args attention{};
    attention.dtype = attention.kv_dtype = FRT_DTYPE_BF16;
    attention.scale = 0.2f;
    attention.sequences = batch.view();
    attention.heads = 4;
    attention.kv_heads = 2;
    attention.head_dim = 32;
    attention.max_rows = 400;
    attention.q = q.data();
    attention.keys = attention.values = keys.data();
    attention.slot_stride = 400 * 2 * 32 * 2;
    attention.y = y.data();
    CHECK(allocations_of(device, FRT_OP_ATTENTION, attention) == 0);

    Array c = random.array(FRT_DTYPE_BF16, n * 64), a = random.array(FRT_DTYPE_BF16, n * 2);
    Array o(FRT_DTYPE_BF16, n * 32);
    std::vector<float> state(2 * 16 * 16), two(2, -0.1f);
    frt_gated_delta_args delta{};
    delta.dtype = FRT_DTYPE_BF16;
    delta.sequences = batch.view();
    delta.key_heads = 1;
    delta.value_heads = 2;
    delta.key_dim = delta.value_dim = 16;
    delta.chunk = 64;
    delta.c = c.data();
    delta.a = delta.b = a.data();
    delta.decay = delta.dt_bias = two.data();
    delta.state = state.data();
    delta.slot_stride = 2 * 16 * 16 * 4;
    delta.o = o.data();
    CHECK(allocations_of(device, FRT_OP_GATED_DELTA, delta) == 0);
  }

  const Batch batch = one_sequence(1);
  std::vector<float> logits(30000);
  for (float& value : logits) value = random.normal(0.1f);
  frt_sampling_params params{};
  params.temperature = 1.0f;
  params.repetition_penalty = 1.0f;
  params.top_p = 1.0f;
  int32_t id = -1;
  frt_sample_args sample{};
  sample.vocabulary = 30000;
  sample.sequences = batch.view();
  sample.logits = logits.data();
  sample.stride = 30000;
  sample.params = &params;
  sample.ids = &id;
  CHECK(allocations_of(device, FRT_OP_SAMPLE, sample) == 0);
  CHECK(id >= 0);
}
