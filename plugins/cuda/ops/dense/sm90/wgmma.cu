// SPDX-License-Identifier: Apache-2.0
// Which tiles and clusters a product of hundreds of rows is given; the kernel is wgmma.cuh.
//
// Floor: 2 rows inputs outputs over 790 TFLOP/s (H200): gate and up of a prefix of 542 rows, 2048
// to 2 x 16384, 92 us; a vision layer of 512 rows, 2 to 6 us a product, and then as many tiles as
// SMs count more than anything else.
//
// The arrangement with the least estimated time is taken, for the rows there are: also how many
// blocks divide the inputs.
#include "wgmma.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "../../common/exchange.hpp"
#include "../../common/tensor_map.hpp"
#include "wgmma.cuh"

namespace frt::cuda {
namespace {

constexpr int kLeastRows = 128;  // below, linear/skinny_gemm.cu is as fast
// A grid has at most 65535 tiles of rows and of outputs, of four parts together.
constexpr int kMostRows = 1 << 21, kMostOutputs = 1 << 20;
// Inputs of which the tensor cores add products of e4m3 up, in fewer bits than sums in f32 have:
// 128 steps cut off about 0.3 % of a sum.
constexpr int kMostFp8Chain = 4096;

// What is asked for: of bf16, or of e4m3 with the factors of its sums.
struct Work {
  SkinnyProduct product;
  std::array<SkinnyPart, kWgmmaParts> parts{};
  std::size_t count = 0;
  const void* up = nullptr;  // gated
  bool fp8 = false;
  std::array<float, kWgmmaParts> factors{}, y_factors{};
  float up_factor = 0;

  std::span<const SkinnyPart> used() const { return {parts.data(), count}; }
  int depth() const { return fp8 ? kWgmmaDepth<true> : kWgmmaDepth<false>; }
  int64_t steps() const { return ceil_div(product.inputs, depth()); }
};

template <int kBlocks, int kRows, bool kGated>
constexpr WgmmaKernel kernel() {
  return {kBlocks, kRows, kGated, dense_wgmma_kernel<kBlocks, kRows, kGated, false>,
          kWgmmaSharedBytes<kBlocks, kRows, kGated>};
}

const WgmmaKernel kKernels[] = {
    kernel<2, 136, true>(),  kernel<2, 160, true>(),  kernel<2, 184, true>(),
    kernel<1, 96, false>(),  kernel<1, 128, false>(), kernel<1, 136, false>(),
    kernel<1, 176, false>(), kernel<1, 184, false>(), kernel<1, 192, false>(),
    kernel<1, 256, false>(), kernel<2, 136, false>(), kernel<2, 200, false>()};

int64_t output_blocks(std::span<const SkinnyPart> parts, int outputs_each) {
  int64_t blocks = 0;
  for (const SkinnyPart& part : parts) blocks += ceil_div(part.outputs, outputs_each);
  return blocks;
}

// Clusters that run at the same time: a device's SMs come in groups, which clusters do not
// always fill.
int64_t clusters_at_once(Device& device, const WgmmaKernel& kernel, int cluster) {
  static std::mutex mutex;
  static std::map<std::tuple<int, const WgmmaKernel*, int>, int> known;
  const std::lock_guard lock(mutex);
  const auto [place, fresh] = known.try_emplace({device.ordinal(), &kernel, cluster}, 1);
  if (!fresh) return place->second;
  raise_shared_limit(device, kernel.function, kernel.shared_bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(kWgmmaThreads);
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  device.check(cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &config),
               "dense product: clusters");
  place->second = std::max(clusters, 1);
  return place->second;
}

// Into how many parts the inputs go: blocks of a cluster, clusters.
struct Division {
  int splits, sharing;
};
constexpr Division kDivisions[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {kSharingSplits, kMostSharing}};

struct Arrangement {
  const WgmmaKernel* kernel = nullptr;
  Division division{1, 1};
  int64_t tiles = 0, waves = 0;
  double cost = 0;  // cycles

  int blocks() const { return division.splits * division.sharing; }  // of a tile
};

// Estimates, in cycles: an SM multiplies 64 x 256 x 16 in 128. All together take in 55 bytes
// each from L2, or 43 where weights pass through it once. Around a tile come its first copies and
// its last rows, and sums on their way from block to block.
Arrangement arrange(Device& device, const Work& work, const WgmmaKernel& kernel,
                    Division division) {
  constexpr double kLeastCycles = 3500, kRowCycles = 12;
  constexpr double kSplitCycles = 600, kSplitRowCycles = 20, kSharingCycles = 2500;
  constexpr double kResidentBytes = 32 << 20;
  Arrangement a{&kernel, division};
  const int64_t outputs = output_blocks(work.used(), kernel.outputs());
  a.tiles = outputs * ceil_div(work.product.rows, kernel.rows);
  a.waves = ceil_div(a.tiles * division.sharing, clusters_at_once(device, kernel, division.splits));
  const int64_t steps = ceil_div(work.steps(), a.blocks());
  const double weight_rows = 128.0 * kernel.blocks;
  const double weights =
      static_cast<double>(outputs * work.steps()) * weight_rows * kWgmmaDepthBytes;
  const double rate =
      (weights > kResidentBytes ? 43.0 : 55.0) * device.properties().multiprocessors;
  const double bytes = static_cast<double>(a.tiles * a.blocks() * steps) *
                       (weight_rows + kernel.rows) * kWgmmaDepthBytes;
  const auto waves = static_cast<double>(a.waves);
  const double rows = kernel.blocks * kernel.rows;  // of 128 outputs
  const double multiplied = waves * static_cast<double>(steps) * 4.0 * rows;
  a.cost = std::max(multiplied, bytes / rate) + waves * (kLeastCycles + kRowCycles * rows);
  if (division.splits > 1) {
    a.cost += kSplitCycles + kSplitRowCycles * rows * (division.splits - 1) / division.splits;
  }
  if (division.sharing > 1) a.cost += kSharingCycles;
  return a;
}

Arrangement choose(Device& device, const Work& work) {
  Arrangement best;
  for (const Division& division : kDivisions) {
    const int blocks = division.splits * division.sharing;
    if (work.up && blocks > 1) continue;
    if (work.fp8 && ceil_div(work.steps(), blocks) * work.depth() > kMostFp8Chain) continue;
    for (const WgmmaKernel& kernel : work.fp8 ? wgmma_fp8_kernels() : std::span(kKernels)) {
      if (kernel.gated != (work.up != nullptr)) continue;
      const Arrangement a = arrange(device, work, kernel, division);
      // Clusters that wait for each other must be there at the same time.
      if (division.sharing > 1 && (kernel.blocks != kSharingBlocks || a.waves > 1 ||
                                   a.tiles * division.splits > kWorkCounters)) {
        continue;
      }
      if (!best.kernel || a.cost < best.cost) best = a;
    }
  }
  return best;
}

void submit(Stream& stream, const Work& work) {
  Device& device = stream.device();
  const SkinnyProduct& product = work.product;
  const Arrangement a = choose(device, work);
  const int outputs = a.kernel->outputs();
  const frt_dtype dtype = work.fp8 ? FRT_DTYPE_F8_E4M3 : FRT_DTYPE_BF16;
  const int64_t value = work.fp8 ? 1 : 2;  // bytes
  const auto make_map = [&](const void* data, int64_t rows, int64_t stride, int box_rows) {
    return make_tensor_map(device, {data, product.inputs, rows, stride * value, box_rows, dtype},
                           "dense product");
  };
  WgmmaArgs args{};
  WgmmaMaps maps{};
  args.product = product;
  args.splits = a.division.splits;
  args.sharing = a.division.sharing;
  args.steps = static_cast<int>(work.steps());
  args.steps_each = static_cast<int>(ceil_div(work.steps(), a.blocks()));
  args.row_tiles = static_cast<int>(ceil_div(product.rows, a.kernel->rows));
  args.tiles = static_cast<int>(a.tiles);
  args.up_factor = work.up_factor;
  maps.x = make_map(product.x, product.rows, product.x_stride, a.kernel->rows);
  const std::span<const SkinnyPart> parts = work.used();
  for (std::size_t i = 0; i < kWgmmaParts; ++i) {
    const std::size_t part = std::min(i, parts.size());
    args.first_block[i] = static_cast<int>(output_blocks(parts.first(part), outputs));
    if (part == parts.size()) continue;
    args.parts[i] = parts[i];
    args.factors[i] = work.factors[i];
    args.y_factors[i] = work.y_factors[i];
    maps.weights[i] = make_map(parts[i].weight, parts[i].outputs, product.inputs, outputs);
  }
  args.first_block[kWgmmaParts] = static_cast<int>(output_blocks(parts, outputs));
  if (work.up) maps.weights[1] = make_map(work.up, parts[0].outputs, product.inputs, outputs);
  if (args.sharing > 1) {
    const int64_t sums = a.tiles * a.kernel->rows * outputs;
    void* scratch = stream.scratch(static_cast<std::size_t>(sums) * sizeof(float));
    args.sums = static_cast<float*>(scratch);
    args.work_counters = work_counters(scratch);
  }
  // Blocks stay for further tiles, unless each has its part of the inputs of one.
  const dim3 blocks = work.up ? dim3(1, static_cast<unsigned>(std::min(
                                            a.tiles, clusters_at_once(device, *a.kernel, 1))))
                              : dim3(static_cast<unsigned>(args.splits),
                                     static_cast<unsigned>(args.row_tiles * args.sharing),
                                     static_cast<unsigned>(args.first_block[kWgmmaParts]));
  const Grid grid{blocks, dim3(kWgmmaThreads), a.kernel->shared_bytes,
                  static_cast<unsigned>(args.splits)};
  const CoResidentLaunch co_resident(args.sharing > 1 ? &stream : nullptr);
  launch(stream, grid, a.kernel->function, maps, args);
}

Work work_of(const SkinnyProduct& product, std::span<const SkinnyPart> parts) {
  Work work{product};
  work.count = parts.size();
  std::copy(parts.begin(), parts.end(), work.parts.begin());
  return work;
}

Work work_of(const Fp8Input& input, std::span<const Fp8Part> parts) {
  Work work{{input.rows, input.inputs, input.row_count, input.x, input.x_stride}};
  work.fp8 = true;
  work.count = parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Fp8Part& part = parts[i];
    work.parts[i] = {part.weight.data, part.weight.rows, part.bias,        part.activation,
                     part.gate,        part.addend,      part.addend_rows, part.accumulate,
                     part.y_dtype,     part.y,           part.y_stride};
    work.factors[i] = fp8_factors(input, part.weight).all;
    work.y_factors[i] = part.y_scale > 0 ? 1.0f / part.y_scale : 0.0f;
  }
  return work;
}

bool vectors(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool wgmma_supports(const SkinnyProduct& product, std::span<const SkinnyPart> parts) {
  return product.rows > kLeastRows && product.rows <= kMostRows && product.inputs % 8 == 0 &&
         parts.size() <= static_cast<std::size_t>(kWgmmaParts) &&
         vectors(product.x, product.x_stride) &&
         std::all_of(parts.begin(), parts.end(), [](const SkinnyPart& part) {
           return part.outputs <= kMostOutputs && part.outputs % 8 == 0 &&
                  vectors(part.y, part.y_stride) &&
                  reinterpret_cast<uintptr_t>(part.weight) % 16 == 0;
         });
}

bool wgmma_supports(const Fp8Input& input, std::span<const Fp8Part> parts) {
  const bool tensors = std::all_of(parts.begin(), parts.end(), [](const Fp8Part& part) {
    return part.weight.type == WeightType::kFp8Tensor;
  });
  const Work work = work_of(input, parts);
  return tensors && input.inputs % 16 == 0 && input.x_stride % 16 == 0 &&
         input.inputs <= kMostSplits * kMostFp8Chain && wgmma_supports(work.product, work.used());
}

bool wgmma_supports_gate_up(const Fp8Input& input, const Fp8Part& gate, const Weight& up) {
  Fp8Part other = gate;
  other.weight = up;
  return gate.y_dtype != FRT_DTYPE_F32 && input.inputs <= kMostFp8Chain &&
         wgmma_supports(input, std::array{gate, other});
}

void wgmma_products(Stream& stream, const SkinnyProduct& product,
                    std::span<const SkinnyPart> parts) {
  submit(stream, work_of(product, parts));
}

void wgmma_products(Stream& stream, const Fp8Input& input, std::span<const Fp8Part> parts) {
  submit(stream, work_of(input, parts));
}

void wgmma_gate_up(Stream& stream, const SkinnyProduct& product, const SkinnyPart& gate,
                   const void* up) {
  Work work = work_of(product, {&gate, 1});
  work.up = up;
  submit(stream, work);
}

void wgmma_gate_up(Stream& stream, const Fp8Input& input, const Fp8Part& gate, const Weight& up) {
  Work work = work_of(input, {&gate, 1});
  work.parts[0].activation = FRT_ACTIVATION_GELU;
  work.up = up.data;
  work.up_factor = fp8_factors(input, up).all;
  submit(stream, work);
}

}  // namespace frt::cuda
