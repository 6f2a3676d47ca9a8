// SPDX-License-Identifier: Apache-2.0
// The sequence operators of the CPU backend beside what the machine can do. Shapes are those of a
// 27B-class hybrid (24 heads over 4, head 256; 48 value heads over 16 of 128 x 128).
//
// Decode is bound by memory: GB/s is what must be read (and written) by the best time, to be held
// against `read_bandwidth`. Slots are taken in turn, so that nothing is found in a cache that would
// not be there in a model. Prefill is bound by arithmetic: GFLOP/s counts multiply and add.
// p50 beside the best tells how busy the machine was with something else.
#include <benchmark/benchmark.h>
#include <frt/ops/attention.h>
#include <frt/ops/checksum.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/sample.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cpu_device.hpp"

namespace {

using frt::cpu_test::CpuDevice;
using Clock = std::chrono::steady_clock;

class Samples {
 public:
  Samples(benchmark::State& state, double bytes, double operations)
      : state_(state), bytes_(bytes), operations_(operations) {}
  ~Samples() {
    std::sort(seconds_.begin(), seconds_.end());
    const double best = seconds_.front();
    state_.counters["best_us"] = best * 1e6;
    state_.counters["p50_us"] = seconds_[seconds_.size() / 2] * 1e6;
    if (bytes_ > 0) state_.counters["GB/s"] = bytes_ / best * 1e-9;
    if (operations_ > 0) state_.counters["GFLOP/s"] = operations_ / best * 1e-9;
  }
  template <class Body>
  void measure(Body&& body) {
    const auto begin = Clock::now();
    body();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    state_.SetIterationTime(seconds);
    seconds_.push_back(seconds);
  }

 private:
  benchmark::State& state_;
  double bytes_, operations_;
  std::vector<double> seconds_;
};

// A recorded call, launched as a model would.
template <class Args>
class Recorded {
 public:
  Recorded(CpuDevice& device, const char* name, Args args) : device_(device) {
    args.struct_size = sizeof(args);
    const frt_backend_v1& backend = device.backend();
    frt_error error{};
    frt::check(backend.capture_begin(device.stream(), &error), error);
    const frt_kernel& kernel = device.kernel(name).kernel;
    frt::check(kernel.launch(kernel.self, device.stream(), &args, &error), error);
    frt::check(backend.capture_end(device.stream(), &exec_, &error), error);
  }
  ~Recorded() { device_.backend().exec_destroy(exec_); }
  void run() {
    device_.backend().exec_launch(exec_, device_.stream());
    device_.backend().stream_sync(device_.stream());
  }

 private:
  CpuDevice& device_;
  frt_backend_exec exec_ = nullptr;
};

// Ordinary values of f32, bf16 or f8: patterns whose exponents are harmless, repeated.
void fill(void* data, std::size_t bytes, frt_dtype dtype) {
  std::mt19937 engine(1);
  std::vector<uint8_t> pattern(1 << 16);
  for (std::size_t i = 0; i < pattern.size(); i += 4) {
    const float value = std::normal_distribution<float>()(engine);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (dtype == FRT_DTYPE_BF16) bits = (bits & 0xFFFF0000u) | (bits >> 16);
    if (dtype == FRT_DTYPE_F8_E4M3) bits &= 0xBFBFBFBFu;
    std::memcpy(&pattern[i], &bits, 4);
  }
  auto* to = static_cast<uint8_t*>(data);
  for (std::size_t i = 0; i < bytes; i += pattern.size()) {
    std::memcpy(to + i, pattern.data(), std::min(pattern.size(), bytes - i));
  }
}

template <class T>
T* filled(CpuDevice& device, std::size_t count, frt_dtype dtype = FRT_DTYPE_F32) {
  T* data = device.allocate<T>(count);
  fill(data, count * sizeof(T), dtype);
  return data;
}

void read_bandwidth(benchmark::State& state) {
  CpuDevice device;
  const std::size_t words = (std::size_t{512} << 20) / 8;
  frt_checksum_args args{};
  args.x = filled<uint64_t>(device, words);
  args.bytes = words * 8;
  args.y = device.allocate<uint64_t>(1);
  Recorded<frt_checksum_args> recorded(device, FRT_OP_CHECKSUM, args);
  Samples samples(state, static_cast<double>(args.bytes), 0);
  for (auto _ : state) samples.measure([&] { recorded.run(); });
}
BENCHMARK(read_bandwidth)->UseManualTime();

// ---- attention -------------------------------------------------------------------------------

constexpr int32_t kHeads = 24, kKvHeads = 4, kHeadDim = 256;

struct AttentionCase {
  AttentionCase(CpuDevice& device, frt_dtype kv, int32_t count, int32_t rows, int32_t position,
                int32_t all_slots)
      : slots(all_slots),
        slot(static_cast<std::size_t>(count)),
        positions(static_cast<std::size_t>(count), position),
        lengths(static_cast<std::size_t>(count), rows) {
    const std::size_t kv_bytes = kv == FRT_DTYPE_F32 ? 4 : kv == FRT_DTYPE_BF16 ? 2 : 1;
    const auto seen = static_cast<std::size_t>(position + rows);
    const std::size_t slot_bytes = seen * kKvHeads * kHeadDim * kv_bytes;
    const auto q = static_cast<std::size_t>(count * rows * kHeads * kHeadDim);
    args.dtype = FRT_DTYPE_BF16;
    args.kv_dtype = kv;
    args.scale = 1.0f / 16;
    args.sequences = {count, rows, slot.data(), positions.data(), lengths.data()};
    args.heads = kHeads;
    args.kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.max_rows = position + rows;
    args.q = filled<uint16_t>(device, q, FRT_DTYPE_BF16);
    args.gate = filled<uint16_t>(device, q, FRT_DTYPE_BF16);
    args.gate_row_stride = kHeads * kHeadDim;
    args.gate_head_stride = kHeadDim;
    uint8_t* cache = device.allocate<uint8_t>(2 * slot_bytes * static_cast<std::size_t>(slots));
    fill(cache, 2 * slot_bytes * static_cast<std::size_t>(slots), kv);
    args.keys = cache;
    args.values = cache + slot_bytes;
    args.slot_stride = static_cast<int64_t>(2 * slot_bytes);
    args.k_scale = args.v_scale = 1.0f;
    args.y = device.allocate<uint16_t>(q);
    bytes = static_cast<double>(count) * 2.0 * static_cast<double>(slot_bytes);
  }
  void next() {
    for (int32_t& s : slot) s = turn++ % slots;
  }
  int32_t slots;
  std::vector<int32_t> slot, positions, lengths;
  frt_attention_args args{};
  double bytes = 0;
  int32_t turn = 0;
};

void attention_decode(benchmark::State& state) {
  CpuDevice device;
  const auto kv = static_cast<frt_dtype>(state.range(0));
  const auto position = static_cast<int32_t>(state.range(1)) - 1;
  const auto batch = static_cast<int32_t>(state.range(2));
  const auto slots = std::max(batch, static_cast<int32_t>(65536 / state.range(1)));
  AttentionCase c(device, kv, batch, 1, position, slots);
  Recorded<frt_attention_args> recorded(device, FRT_OP_ATTENTION, c.args);
  Samples samples(state, c.bytes, 0);
  for (auto _ : state) {
    c.next();
    samples.measure([&] { recorded.run(); });
  }
}
BENCHMARK(attention_decode)
    ->ArgNames({"kv", "context", "batch"})
    ->ArgsProduct({{FRT_DTYPE_BF16}, {256, 2048, 16384, 65536}, {1}})
    ->Args({FRT_DTYPE_BF16, 2048, 8})
    ->Args({FRT_DTYPE_F32, 16384, 1})
    ->Args({FRT_DTYPE_F8_E4M3, 16384, 1})
    ->UseManualTime();

void attention_prefill(benchmark::State& state) {
  CpuDevice device;
  const auto position = static_cast<int32_t>(state.range(0));
  const auto rows = static_cast<int32_t>(state.range(1));
  AttentionCase c(device, FRT_DTYPE_BF16, 1, rows, position, 1);
  Recorded<frt_attention_args> recorded(device, FRT_OP_ATTENTION, c.args);
  const double pairs = static_cast<double>(rows) * (position + 0.5 * (rows + 1));
  Samples samples(state, 0, pairs * kHeads * kHeadDim * 4);
  for (auto _ : state) samples.measure([&] { recorded.run(); });
}
BENCHMARK(attention_prefill)
    ->ArgNames({"position", "rows"})
    ->Args({0, 512})
    ->Args({4096, 512})
    ->UseManualTime();

// ---- gated delta -----------------------------------------------------------------------------

constexpr int32_t kKeyHeads = 16, kValueHeads = 48, kDim = 128;
constexpr int32_t kChannels = 2 * kKeyHeads * kDim + kValueHeads * kDim;

void gated_delta(benchmark::State& state) {
  CpuDevice device;
  const auto rows = static_cast<int32_t>(state.range(0));
  const auto batch = static_cast<int32_t>(state.range(1));
  const int32_t slots = 32;
  const auto all = static_cast<std::size_t>(rows * batch);
  std::vector<int32_t> slot(static_cast<std::size_t>(batch)), position(slot.size(), 0),
      length(slot.size(), rows);
  frt_gated_delta_block_args args{};
  args.epsilon = 1e-6f;
  args.conv.struct_size = sizeof(args.conv);
  args.delta.struct_size = sizeof(args.delta);
  args.conv.dtype = args.delta.dtype = FRT_DTYPE_BF16;
  args.conv.sequences =
      args.delta.sequences = {batch, rows, slot.data(), position.data(), length.data()};
  args.conv.channels = kChannels;
  args.conv.width = 4;
  args.conv.u = filled<uint16_t>(device, all * kChannels, FRT_DTYPE_BF16);
  args.conv.conv_weight = filled<float>(device, 4 * kChannels);
  args.conv.window = filled<uint16_t>(device, slots * 3 * kChannels, FRT_DTYPE_BF16);
  args.conv.slot_stride = 3 * kChannels * 2;
  args.conv.c = device.allocate<uint16_t>(all * kChannels);
  args.delta.key_heads = kKeyHeads;
  args.delta.value_heads = kValueHeads;
  args.delta.key_dim = args.delta.value_dim = kDim;
  args.delta.chunk = 64;
  args.delta.c = args.conv.c;
  args.delta.a = filled<uint16_t>(device, all * kValueHeads, FRT_DTYPE_BF16);
  args.delta.b = filled<uint16_t>(device, all * kValueHeads, FRT_DTYPE_BF16);
  args.delta.decay = device.upload(std::vector<float>(kValueHeads, -0.1f));
  args.delta.dt_bias = filled<float>(device, kValueHeads);
  constexpr std::size_t kState = static_cast<std::size_t>(kValueHeads) * kDim * kDim;
  args.delta.state = filled<float>(device, slots * kState);
  args.delta.slot_stride = kState * 4;
  args.delta.o = device.allocate<uint16_t>(all * kValueHeads * kDim);
  args.z = filled<uint16_t>(device, all * kValueHeads * kDim, FRT_DTYPE_BF16);
  args.norm_weight = filled<float>(device, kDim);
  args.y = device.allocate<uint16_t>(all * kValueHeads * kDim);
  Recorded<frt_gated_delta_block_args> recorded(device, FRT_OP_GATED_DELTA_BLOCK, args);

  // Per chunk of 64 and head: K S, Q S, K^T V: C d d each; the rest to the diagonal: 4 C C d / 2.
  const double products = 3.0 * kDim * kDim + 2.0 * 64 * kDim;
  const double flop = rows > 16 ? 2.0 * products * rows * batch * kValueHeads : 0;
  Samples samples(state, rows > 16 ? 0 : 8.0 * kState * batch, flop);
  int32_t turn = 0;
  for (auto _ : state) {
    for (int32_t& s : slot) s = turn++ % slots;
    samples.measure([&] { recorded.run(); });
  }
}
BENCHMARK(gated_delta)
    ->ArgNames({"rows", "batch"})
    ->Args({1, 1})
    ->Args({1, 8})
    ->Args({4, 1})
    ->Args({512, 1})
    ->UseManualTime();

// ---- sampling --------------------------------------------------------------------------------

constexpr int32_t kVocabulary = 248320;

void sample(benchmark::State& state) {
  CpuDevice device;
  frt_sampling_params params{};
  params.temperature = 1.0f;
  params.top_k = static_cast<int32_t>(state.range(0));
  params.top_p = static_cast<float>(state.range(1)) / 100;
  params.repetition_penalty = 1.1f;
  std::vector<int32_t> slot(1, 0), position(1, 0), length(1, 1), ids(1);
  std::vector<float> log_probability(1);
  std::vector<float> logits(kVocabulary);
  std::mt19937 engine(1);
  for (float& l : logits) l = std::normal_distribution<float>(0, 3)(engine);
  for (int i = 0; i < 20; ++i) logits[engine() % kVocabulary] += 12;  // a model is rarely unsure
  frt_sample_args args{};
  args.vocabulary = kVocabulary;
  args.sequences = {1, 1, slot.data(), position.data(), length.data()};
  args.logits = logits.data();
  args.stride = kVocabulary;
  args.params = &params;
  args.counts = device.upload(std::vector<uint32_t>(kVocabulary, 0));
  args.ids = ids.data();
  args.log_probabilities = log_probability.data();
  Recorded<frt_sample_args> recorded(device, FRT_OP_SAMPLE, args);
  Samples samples(state, 0, 0);
  for (auto _ : state) {
    ++position[0];
    samples.measure([&] { recorded.run(); });
  }
}
BENCHMARK(sample)
    ->ArgNames({"top_k", "top_p"})
    ->Args({20, 95})
    ->Args({0, 95})
    ->Args({0, 100})
    ->UseManualTime();

void argmax(benchmark::State& state) {
  CpuDevice device;
  int32_t id = 0;
  frt_argmax_args args{};
  args.rows = 1;
  args.width = kVocabulary;
  args.logits = filled<float>(device, kVocabulary);
  args.stride = kVocabulary;
  args.ids = &id;
  Recorded<frt_argmax_args> recorded(device, FRT_OP_ARGMAX, args);
  Samples samples(state, kVocabulary * 4.0, 0);
  for (auto _ : state) samples.measure([&] { recorded.run(); });
}
BENCHMARK(argmax)->UseManualTime();

}  // namespace

BENCHMARK_MAIN();
