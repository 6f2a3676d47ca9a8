// SPDX-License-Identifier: Apache-2.0
// The products of the CPU backend beside what the machine can do. Shapes are those of a 0.8B-class
// model (hidden 1024, feed-forward 3584, vocabulary 248,320).
//
// decode_*: a stack of layers, recorded as one executable whose weights are far larger than any
// cache; GB/s is the packed bytes of all weights by the best time, to be held against
// `read_bandwidth`. prefill_*: GFLOP/s of one product, to be held against `onednn`: the same
// product by oneDNN alone, with all threads and weights packed as it likes best beforehand.
// p50 beside the best tells how busy the machine was with something else; per_cpu is the rate by
// the processor time spent (of all threads, waiting included) instead of the time that passed.
#include <benchmark/benchmark.h>
#include <frt/ops/checksum.h>
#include <frt/ops/linear.h>
#include <frt/ops/moe.h>
#include <frt/weights.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dnnl.hpp>
#include <functional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cpu_device.hpp"

extern "C" void omp_set_num_threads(int threads);

namespace {

using frt::cpu_test::CpuDevice;
using Clock = std::chrono::steady_clock;

constexpr int32_t kHidden = 1024;
constexpr int32_t kFeedForward = 3584;
constexpr int32_t kVocabulary = 248320;

// --threads=N and --layers=N, before the flags of the library. Few layers and one thread give
// short runs, whose best is still meaningful on a busy machine.
int g_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
int g_layers = 12;

CpuDevice& device() {
  static CpuDevice one({.threads = g_threads});
  return one;
}

// Times `body` for every iteration; reports the best and the median.
void measure(benchmark::State& state, double bytes, double operations,
             const std::function<void()>& body) {
  std::vector<double> seconds;
  const std::clock_t clock = std::clock();
  for (auto _ : state) {
    const auto begin = Clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    state.SetIterationTime(seconds.back());
  }
  const double spent = static_cast<double>(std::clock() - clock) / CLOCKS_PER_SEC;
  const double per_cpu = static_cast<double>(seconds.size()) * g_threads / std::max(spent, 1e-9);
  state.counters["per_cpu"] = (bytes > 0 ? bytes : operations) * per_cpu * 1e-9;
  std::sort(seconds.begin(), seconds.end());
  state.counters["best_us"] = seconds.front() * 1e6;
  state.counters["p50_us"] = seconds[seconds.size() / 2] * 1e6;
  if (bytes > 0) state.counters["GB/s"] = bytes / seconds.front() * 1e-9;
  if (operations > 0) state.counters["GFLOP/s"] = operations / seconds.front() * 1e-9;
}

// Calls recorded one after another and launched as one.
class Recording {
 public:
  Recording() {
    frt_error error{};
    frt::check(device().backend().capture_begin(device().stream(), &error), error);
  }
  ~Recording() { device().backend().exec_destroy(exec_); }
  template <class Args>
  void add(const char* name, Args args) {
    args.struct_size = sizeof(args);
    frt_error error{};
    const frt_kernel& kernel = device().kernel(name).kernel;
    frt::check(kernel.launch(kernel.self, device().stream(), &args, &error), error);
  }
  void end() {
    frt_error error{};
    frt::check(device().backend().capture_end(device().stream(), &exec_, &error), error);
  }
  void run() {
    device().backend().exec_launch(exec_, device().stream());
    device().backend().stream_sync(device().stream());
  }

 private:
  frt_backend_exec exec_ = nullptr;
};

struct Format {
  const char* name;
  frt_weight_format format;
};
constexpr Format kFormats[] = {{"bf16", FRT_WEIGHT_BF16},
                               {"fp8_block", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 128, 128)},
                               {"fp8_channel", FRT_WEIGHT_FP8_CHANNEL(FRT_DTYPE_F32)},
                               {"nvfp4", FRT_WEIGHT_NVFP4},
                               {"f32", FRT_WEIGHT_F32}};

// Memory of the device, filled with one byte, freed together.
class Arena {
 public:
  ~Arena() {
    for (void* block : blocks_) {
      device().backend().memory_free(device().handle(), FRT_SPACE_DEVICE, block);
    }
  }
  void* take(std::size_t bytes, uint8_t value = 0x33) {
    void* block = nullptr;
    frt_error error{};
    frt::check(
        device().backend().memory_alloc(device().handle(), FRT_SPACE_DEVICE, bytes, &block, &error),
        error);
    std::memset(block, value, bytes);  // 0x3333: an ordinary number in every format
    blocks_.push_back(block);
    return block;
  }
  frt_weight weight(frt_weight_format format, int32_t rows, int32_t cols) {
    const frt::WeightBytes bytes = frt::weight_bytes(format, rows, cols);
    frt_weight weight{};
    weight.format = format;
    weight.rows = rows;
    weight.cols = cols;
    weight.global_scale = 1.0f;
    weight.data = take(static_cast<std::size_t>(bytes.data));
    if (bytes.scale > 0) weight.scale = take(static_cast<std::size_t>(bytes.scale));
    packed_ += static_cast<double>(bytes.total());
    return weight;
  }
  double packed_bytes() const { return packed_; }

 private:
  std::vector<void*> blocks_;
  double packed_ = 0;
};

std::size_t value_bytes(frt_dtype dtype, int64_t count) {
  return static_cast<std::size_t>(count) * frt::dtype_bits(dtype) / 8;
}

void read_bandwidth(benchmark::State& state) {
  Arena arena;
  frt_checksum_args args{};
  args.bytes = static_cast<uint64_t>(g_layers) << 26;
  args.x = arena.take(args.bytes);
  args.y = static_cast<uint64_t*>(arena.take(64));
  Recording recording;
  recording.add(FRT_OP_CHECKSUM, args);
  recording.end();
  measure(state, static_cast<double>(args.bytes), 0, [&] { recording.run(); });
}

// The weights of g_layers layers: two norm_linears, a gate_up and two linears each.
void decode_layers(benchmark::State& state, frt_weight_format format, frt_dtype dtype,
                   int32_t rows) {
  Arena arena;
  Recording recording;
  void* residual = arena.take(value_bytes(FRT_DTYPE_F32, rows * kHidden), 0);
  void* x = arena.take(value_bytes(dtype, rows * kHidden));
  void* wide = arena.take(value_bytes(dtype, rows * 3 * 2048));
  void* small = arena.take(value_bytes(dtype, rows * kHidden));
  auto* norm = static_cast<float*>(arena.take(kHidden * sizeof(float)));
  const auto linear = [&](int32_t outputs, int32_t inputs, const void* from, void* to) {
    frt_linear_args args{};
    args.x_dtype = args.y_dtype = dtype;
    args.rows = rows;
    args.x = from;
    args.x_stride = inputs;
    args.weight = arena.weight(format, outputs, inputs);
    args.y = to;
    args.y_stride = outputs;
    recording.add(FRT_OP_LINEAR, args);
  };
  for (int layer = 0; layer < g_layers; ++layer) {
    frt_linear_part parts[2] = {{arena.weight(format, 6144, kHidden), wide, 6144},
                                {arena.weight(format, 2048, kHidden), wide, 2048}};
    frt_norm_linears_args group{};
    group.residual_dtype = FRT_DTYPE_F32;
    group.dtype = dtype;
    group.rows = rows;
    group.part_count = 2;
    group.epsilon = 1e-6f;
    group.residual = residual;
    group.delta = small;
    group.norm_weight = norm;
    group.x = x;
    group.parts = parts;
    recording.add(FRT_OP_NORM_LINEARS, group);
    linear(kHidden, 2048, wide, small);
    frt_norm_gate_up_args gate_up{};
    gate_up.residual_dtype = FRT_DTYPE_F32;
    gate_up.dtype = dtype;
    gate_up.rows = rows;
    gate_up.epsilon = 1e-6f;
    gate_up.residual = residual;
    gate_up.delta = small;
    gate_up.norm_weight = norm;
    gate_up.x = x;
    gate_up.gate_weight = arena.weight(format, kFeedForward, kHidden);
    gate_up.up_weight = arena.weight(format, kFeedForward, kHidden);
    gate_up.gate = gate_up.h = wide;
    recording.add(FRT_OP_NORM_GATE_UP, gate_up);
    linear(kHidden, kFeedForward, wide, small);
  }
  recording.end();
  measure(state, arena.packed_bytes(), 0, [&] { recording.run(); });
}

void decode_head(benchmark::State& state, frt_weight_format format) {
  Arena arena;
  frt_linear_args args{};
  args.x_dtype = FRT_DTYPE_BF16;
  args.y_dtype = FRT_DTYPE_F32;
  args.rows = 1;
  args.x = arena.take(value_bytes(FRT_DTYPE_BF16, kHidden));
  args.x_stride = kHidden;
  args.weight = arena.weight(format, kVocabulary, kHidden);
  args.y = arena.take(value_bytes(FRT_DTYPE_F32, kVocabulary));
  args.y_stride = kVocabulary;
  Recording recording;
  recording.add(FRT_OP_LINEAR, args);
  recording.end();
  measure(state, arena.packed_bytes(), 0, [&] { recording.run(); });
}

// 64 experts of a 35B-A3B-class layer (hidden 2048, width 512), 8 chosen.
void moe(benchmark::State& state, frt_weight_format format, int32_t rows) {
  constexpr int32_t kExperts = 64, kChosen = 8, kInputs = 2048, kWidth = 512;
  Arena arena;
  const auto experts = [&](int32_t outputs, int32_t inputs) {
    frt_expert_weight all{};
    all.expert = arena.weight(format, outputs * kExperts, inputs);
    all.expert.rows = outputs;
    const frt::WeightBytes bytes = frt::weight_bytes(format, outputs, inputs);
    all.data_stride = bytes.data;
    all.scale_stride = bytes.scale;
    return all;
  };
  frt_moe_experts_args args{};
  args.dtype = FRT_DTYPE_BF16;
  args.rows = rows;
  args.experts = kExperts;
  args.experts_per_token = kChosen;
  args.x = arena.take(value_bytes(FRT_DTYPE_BF16, rows * kInputs));
  auto* ids = static_cast<int32_t*>(arena.take(static_cast<std::size_t>(rows * kChosen) * 4));
  args.weights = static_cast<float*>(arena.take(static_cast<std::size_t>(rows * kChosen) * 4));
  args.ids = ids;
  args.gate = experts(kWidth, kInputs);
  args.up = experts(kWidth, kInputs);
  args.down = experts(kInputs, kWidth);
  args.y = arena.take(value_bytes(FRT_DTYPE_BF16, rows * kInputs));
  Recording recording;
  recording.add(FRT_OP_MOE_EXPERTS, args);
  recording.end();
  int32_t next = 0;
  const double share = std::min(1.0, static_cast<double>(rows) * kChosen / kExperts);
  const double operations = 6.0 * rows * kChosen * kInputs * kWidth;
  measure(state, arena.packed_bytes() * share, rows > 16 ? operations : 0, [&] {
    for (int32_t i = 0; i < rows * kChosen; ++i) ids[i] = next++ % kExperts;
    recording.run();
  });
}

void prefill(benchmark::State& state, frt_weight_format format, frt_dtype dtype, int32_t rows,
             int32_t outputs, int32_t inputs) {
  Arena arena;
  frt_linear_args args{};
  args.x_dtype = args.y_dtype = dtype;
  args.rows = rows;
  args.x = arena.take(value_bytes(dtype, static_cast<int64_t>(rows) * inputs));
  args.x_stride = inputs;
  args.weight = arena.weight(format, outputs, inputs);
  args.y = arena.take(value_bytes(dtype, static_cast<int64_t>(rows) * outputs));
  args.y_stride = outputs;
  Recording recording;
  recording.add(FRT_OP_LINEAR, args);
  recording.end();
  measure(state, 0, 2.0 * rows * outputs * inputs, [&] { recording.run(); });
}

void onednn(benchmark::State& state, dnnl::memory::data_type type, int64_t rows, int64_t outputs,
            int64_t inputs) {
  using dnnl::memory;
  omp_set_num_threads(g_threads);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc x({rows, inputs}, type, memory::format_tag::ab);
  const memory::desc w({inputs, outputs}, type, memory::format_tag::any);
  const memory::desc y({rows, outputs}, type, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(x, w, y), engine);
  const dnnl::matmul matmul(descriptor);
  memory source(x, engine), weights(descriptor.weights_desc(), engine), result(y, engine);
  std::memset(source.get_data_handle(), 0x33, x.get_size());
  std::memset(weights.get_data_handle(), 0x33, descriptor.weights_desc().get_size());
  const std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, result}};
  measure(state, 0, 2.0 * static_cast<double>(rows * outputs * inputs), [&] {
    matmul.execute(stream, args);
    stream.wait();
  });
  omp_set_num_threads(1);
}

template <class Body>
void add(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  const auto is_ours = [](const char* flag) {
    return std::sscanf(flag, "--threads=%d", &g_threads) == 1 ||
           std::sscanf(flag, "--layers=%d", &g_layers) == 1;
  };
  argc = static_cast<int>(std::remove_if(argv + 1, argv + argc, is_ours) - argv);
  using State = benchmark::State;
  add("read_bandwidth", read_bandwidth);
  for (const Format& format : kFormats) {
    const frt_weight_format f = format.format;
    const std::string name = format.name;
    for (const int32_t rows : {1, 4, 16}) {
      add("decode_layers/" + name + "/x_bf16/rows:" + std::to_string(rows),
          [=](State& state) { decode_layers(state, f, FRT_DTYPE_BF16, rows); });
    }
    add("decode_layers/" + name + "/x_f32/rows:1",
        [=](State& state) { decode_layers(state, f, FRT_DTYPE_F32, 1); });
    add("decode_head/" + name, [=](State& state) { decode_head(state, f); });
    if (f != frt::kWeightF32) {
      add("decode_moe/" + name + "/rows:1", [=](State& state) { moe(state, f, 1); });
      add("prefill_moe/" + name + "/rows:256", [=](State& state) { moe(state, f, 256); });
    }
  }
  struct Shape {
    int32_t rows, outputs, inputs;
  };
  for (const Shape& s : {Shape{512, 3584, 1024}, Shape{512, 1024, 3584}, Shape{128, 6144, 1024},
                         Shape{64, 2048, 1024}}) {
    const std::string shape =
        std::to_string(s.rows) + "x" + std::to_string(s.outputs) + "x" + std::to_string(s.inputs);
    add("onednn/bf16/" + shape, [=](State& state) {
      onednn(state, dnnl::memory::data_type::bf16, s.rows, s.outputs, s.inputs);
    });
    for (const Format& format : kFormats) {
      add("prefill/" + std::string(format.name) + "/x_bf16/" + shape, [=](State& state) {
        prefill(state, format.format, FRT_DTYPE_BF16, s.rows, s.outputs, s.inputs);
      });
    }
    add("onednn/f32/" + shape, [=](State& state) {
      onednn(state, dnnl::memory::data_type::f32, s.rows, s.outputs, s.inputs);
    });
    add("prefill/f32/x_f32/" + shape, [=](State& state) {
      prefill(state, frt::kWeightF32, FRT_DTYPE_F32, s.rows, s.outputs, s.inputs);
    });
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
