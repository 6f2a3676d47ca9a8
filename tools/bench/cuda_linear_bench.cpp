// SPDX-License-Identifier: Apache-2.0
// GEMVs of the CUDA backend at the shapes of Qwen3.6 27B: each by itself, and all of a
// decode step (64 layers, without the head) as they follow each other in a model, by themselves and
// with the norms before them. Everything is a recorded graph over more weights than the
// second-level cache holds. Prints time, bytes per second, and the share of what reading memory
// allows (4.65 TB/s on an H200).
//
//   cuda_linear_bench [--step] [TB/s]      --step: only the steps
#include <cuda_runtime.h>
#include <frt/ops/elementwise.h>
#include <frt/ops/linear.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <frt/plugin.hpp>
#include <functional>
#include <span>
#include <vector>

#include "backend_device.hpp"
#include "backend_stream.hpp"
#include "driver.hpp"
#include "ops/common/call.hpp"
#include "ops/linear/gemv.hpp"
#include "ops/linear/product.hpp"

namespace frt::cuda {
namespace {

constexpr int kRuns = 5;

void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "cuda_linear_bench: %s\n", cudaGetErrorString(code));
  std::exit(1);
}

// Random bytes, handed out in turns: products in a row read different ones.
class Pool {
 public:
  Pool(Stream& stream, std::size_t bytes, frt_dtype dtype, float low, float high) : size_(bytes) {
    check(cudaMalloc(&base_, bytes));
    frt_fill_uniform_args args{};
    args.dtype = dtype;
    args.count = bytes * 8 / static_cast<std::size_t>(dtype_bits(dtype));
    args.seed = 1;
    args.low = low;
    args.high = high;
    args.y = base_;
    run_operator(stream, FRT_OP_FILL_UNIFORM, args);
    check(cudaStreamSynchronize(stream.native()));
  }
  void* take(std::size_t bytes) {
    bytes = (bytes + 255) / 256 * 256;
    if (at_ + bytes > size_) at_ = 0;
    at_ += bytes;
    return static_cast<std::byte*>(base_) + at_ - bytes;
  }

  void* base() const { return base_; }

 private:
  void* base_ = nullptr;
  std::size_t size_, at_ = 0;
};

struct Format {
  const char* name;
  frt_weight_format format;
};
constexpr Format kFormats[] = {{"bf16", FRT_WEIGHT_BF16},
                               {"fp8 block", FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 128, 128)},
                               {"fp8 tensor", FRT_WEIGHT_FP8_TENSOR},
                               {"nvfp4", FRT_WEIGHT_NVFP4}};

// What the kernels linked with this program are compiled for.
constexpr PluginCode kCode = {"cuda_linear_bench", FRT_CUDA_ARCH, FRT_CUDA_TARGET_TEXT};

// A host that offers nothing.
constexpr frt_host kNobody = {
    .struct_size = sizeof(frt_host),
    .abi_major = FRT_ABI_MAJOR,
    .abi_minor = FRT_ABI_MINOR,
    .self = nullptr,
    .extension = [](void*, const char*) -> const void* { return nullptr; }};

struct Bench {
  explicit Bench(double rate)
      : host(&kNobody),
        device(0, DeviceOptions{}, kCode, host),
        stream(device, 0),
        peak(rate),
        bf16(stream, 6ull << 30, FRT_DTYPE_BF16, -0.02f, 0.02f),
        fp8(stream, 3ull << 30, FRT_DTYPE_F8_E4M3, -400.0f, 400.0f),
        fp4(stream, 2ull << 30, FRT_DTYPE_F4_E2M1, -6.0f, 6.0f),
        scales(stream, 64ull << 20, FRT_DTYPE_F32, 1e-4f, 2e-4f),
        fp4_scales(stream, 512ull << 20, FRT_DTYPE_F8_E4M3, 0.5f, 1.5f),
        x(stream, 16 * 17408 * 2, FRT_DTYPE_BF16, -1.0f, 1.0f),
        y(stream, std::size_t{16} * 248320 * 4, FRT_DTYPE_BF16, -1.0f, 1.0f),
        residual(stream, 16 * 5120 * 4, FRT_DTYPE_F32, -1.0f, 1.0f),
        delta(stream, 16 * 5120 * 2, FRT_DTYPE_BF16, -1.0f, 1.0f),
        norm(stream, 5120 * 4, FRT_DTYPE_F32, 0.5f, 1.5f) {
    stream.scratch(1);  // made now: not while recording
  }

  frt_weight weight(frt_weight_format format, int32_t rows, int32_t cols) {
    const auto values = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    frt_weight made{};
    made.format = format;
    made.rows = rows;
    made.cols = cols;
    made.global_scale = 0.01f;
    switch (weight_type(format)) {
      case WeightType::kBf16:
        made.data = bf16.take(values * 2);
        bytes += values * 2;
        break;
      case WeightType::kNvfp4:
        made.data = fp4.take(values / 2);
        made.scale = fp4_scales.take(values / 16);
        bytes += values / 2 + values / 16;
        break;
      default:
        made.data = fp8.take(values);
        bytes += values;
        if (format.scale == FRT_DTYPE_NONE) break;
        made.scale = scales.take((values >> 14) * 4 + 4096);
    }
    return made;
  }

  Product product(const frt_weight& weight, int32_t rows) {
    Product made{};
    made.x_dtype = made.y_dtype = FRT_DTYPE_BF16;
    made.rows = rows;
    made.x = x.base();
    made.x_stride = weight.cols;
    made.weight = weight;
    made.y = y.take(static_cast<std::size_t>(rows) * static_cast<std::size_t>(weight.rows) * 2);
    made.y_stride = weight.rows;
    return made;
  }
  // One product each of `heights` outputs, of the same x.
  void multiply(frt_weight_format format, std::span<const int32_t> heights, int32_t cols,
                int32_t rows) {
    std::vector<Product> products;
    for (const int32_t height : heights) {
      products.push_back(product(weight(format, height, cols), rows));
    }
    gemv_products(stream, products);
  }
  void gate_up(frt_weight_format format, int32_t width, int32_t cols, int32_t rows) {
    const Product gate = product(weight(format, width, cols), rows);
    GemvCall planned;
    if (!plan_gemv_gate_up(device, gate, weight(format, width, cols), gemv_ahead(stream),
                           planned)) {
      throw Error(FRT_ERR_UNSUPPORTED, "gate and up do not go together on this device");
    }
    gemv_planned(stream, planned);
  }

  template <class Args>
  void call(const char* name, Args args) {
    run_operator(stream, name, args);
  }

  // The four products of a layer, all of `format` but the two heights that are too small for it.
  void layer(frt_weight_format format, bool attention, bool norms, int32_t rows) {
    constexpr int32_t kHidden = 5120, kWidth = 17408, kValues = 6144;
    std::vector<frt_linear_part> parts;
    const auto part = [&](frt_weight_format f, int32_t height) {
      const frt_weight matrix = weight(f, height, kHidden);
      const Product made = product(matrix, rows);
      parts.push_back({matrix, made.y, made.y_stride});
    };
    if (attention) {
      for (const int32_t height : {12288, 1024, 1024}) part(format, height);
    } else {
      for (const int32_t height : {10240, 6144}) part(format, height);
      for (const int32_t height : {48, 48}) part(kWeightBf16, height);
    }
    frt_norm_linears_args entry{};
    entry.residual_dtype = FRT_DTYPE_F32;
    entry.dtype = FRT_DTYPE_BF16;
    entry.rows = rows;
    entry.part_count = static_cast<int32_t>(parts.size());
    entry.epsilon = 1e-6f;
    entry.x = x.base();
    if (norms) {
      entry.residual = residual.base();
      entry.delta = delta.base();
      entry.norm_weight = static_cast<const float*>(norm.base());
    }
    entry.parts = parts.data();
    call(FRT_OP_NORM_LINEARS, entry);
    linear(weight(format, kHidden, kValues), rows);
    frt_norm_gate_up_args inner{};
    inner.residual_dtype = entry.residual_dtype;
    inner.dtype = entry.dtype;
    inner.rows = rows;
    inner.epsilon = entry.epsilon;
    inner.residual = entry.residual;
    inner.delta = entry.delta;
    inner.norm_weight = entry.norm_weight;
    inner.x = entry.x;
    inner.gate_weight = weight(format, kWidth, kHidden);
    inner.up_weight = weight(format, kWidth, kHidden);
    inner.gate = y.take(std::size_t{16} * kWidth * 2);
    inner.h = y.take(std::size_t{16} * kWidth * 2);
    call(FRT_OP_NORM_GATE_UP, inner);
    linear(weight(format, kHidden, kWidth), rows);
  }
  void linear(const frt_weight& weight, int32_t rows) {
    frt_linear_args args{};
    args.x_dtype = args.y_dtype = FRT_DTYPE_BF16;
    args.rows = rows;
    args.x = x.base();
    args.x_stride = weight.cols;
    args.weight = weight;
    args.y = delta.base();
    args.y_stride = weight.rows;
    call(FRT_OP_LINEAR, args);
  }

  // Records `body` `repeats` times; the median of kRuns launches, per repeat.
  void time(const char* format, const char* name, int32_t rows, int repeats,
            const std::function<void()>& body) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    bytes = 0;
    check(cudaStreamBeginCapture(stream.native(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < repeats; ++i) body();
    check(cudaStreamEndCapture(stream.native(), &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i <= kRuns; ++i) {
      check(cudaEventRecord(begin, stream.native()));
      check(cudaGraphLaunch(exec, stream.native()));
      check(cudaEventRecord(end, stream.native()));
      check(cudaEventSynchronize(end));
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin, end));
      if (i > 0) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    const double seconds = static_cast<double>(times[kRuns / 2]) * 1e-3 / repeats;
    const double amount = static_cast<double>(bytes) / repeats;
    std::printf("%-10s %-10s %2d rows %8.1f MB %8.1f us %6.2f TB/s %5.1f %%\n", format, name, rows,
                amount * 1e-6, seconds * 1e6, amount / seconds * 1e-12,
                amount / seconds * 1e-10 / peak);
    check(cudaEventDestroy(begin));
    check(cudaEventDestroy(end));
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
  }

  Host host;
  BackendDevice device;
  BackendStream stream;
  double peak;
  Pool bf16, fp8, fp4, scales, fp4_scales, x, y, residual, delta, norm;
  std::size_t bytes = 0;
};

void run_steps(Bench& bench) {
  for (const auto& [name, format] : kFormats) {
    for (const int32_t rows : {1, 4, 8}) {
      for (const bool norms : {false, true}) {
        bench.time(name, norms ? "with norms" : "step", rows, 1, [&] {
          for (int i = 0; i < 64; ++i) bench.layer(format, i % 4 == 3, norms, rows);
        });
      }
    }
  }
}

void run_products(Bench& bench) {
  constexpr int32_t kHidden = 5120, kWidth = 17408, kValues = 6144;
  constexpr int32_t kEntry[] = {10240, 6144}, kOut[] = {kHidden}, kHead[] = {248320};
  for (const auto& [name, format] : kFormats) {
    const frt_weight_format f = format;
    for (const int32_t rows : {1, 4, 8, 16}) {
      const auto entry = [&] { bench.multiply(f, kEntry, kHidden, rows); };
      const auto out = [&] { bench.multiply(f, kOut, kValues, rows); };
      const auto gate_up = [&] { bench.gate_up(f, kWidth, kHidden, rows); };
      const auto down = [&] { bench.multiply(f, kOut, kWidth, rows); };
      bench.time(name, "qkv, z", rows, 12, entry);
      bench.time(name, "out", rows, 30, out);
      bench.time(name, "gate, up", rows, 8, gate_up);
      bench.time(name, "down", rows, 12, down);
      bench.time(name, "head", rows, 2, [&] { bench.multiply(f, kHead, kHidden, rows); });
    }
  }
}

}  // namespace
}  // namespace frt::cuda

int main(int argc, char** argv) {
  bool steps = false;
  double peak = 4.65;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--step") == 0) {
      steps = true;
    } else {
      peak = std::atof(argv[i]);
    }
  }
  try {
    frt::cuda::Bench bench(peak);
    if (!steps) frt::cuda::run_products(bench);
    frt::cuda::run_steps(bench);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_linear_bench: %s\n", error.what());
    return 1;
  }
}
