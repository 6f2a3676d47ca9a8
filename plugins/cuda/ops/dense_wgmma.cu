// SPDX-License-Identifier: Apache-2.0
// Which tiles and clusters a product of hundreds of rows is given; the kernel is dense_wgmma.cuh.
//
// Floor: 2 rows inputs outputs over 790 TFLOP/s (H200): gate and up of a prefix of 542 rows, 2048
// to 2 x 16384, 92 us; a vision layer of 512 rows, 2 to 6 us a product, and then as many tiles as
// processors count more than anything else.
//
// The arrangement with the least estimated time is taken. How many blocks divide the inputs depends
// on the weights alone, never on the rows, so that a row's result does not depend on how many there
// are.
#include "dense_wgmma.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "dense_wgmma.cuh"
#include "tensor_map.hpp"

namespace frt::cuda {
namespace {

constexpr int kLeastRows = 128;    // below, linear_chunk.cu is as fast
constexpr int kMostCluster = 8;    // blocks, the portable limit
constexpr int kNominalRows = 512;  // for which the division of the inputs is chosen

struct Kernel {
  int blocks, rows;
  bool gated;
  void (*function)(WgmmaMaps, WgmmaArgs);
  std::size_t shared_bytes;

  int outputs() const { return (gated ? 64 : 128) * blocks; }
};

template <int kBlocks, int kRows, bool kGated>
constexpr Kernel kernel() {
  return {kBlocks, kRows, kGated, dense_wgmma_kernel<kBlocks, kRows, kGated>,
          kWgmmaSharedBytes<kBlocks, kRows>};
}

const Kernel kKernels[] = {
    kernel<2, 136, true>(),  kernel<2, 160, true>(),  kernel<2, 184, true>(),
    kernel<1, 128, false>(), kernel<1, 136, false>(), kernel<1, 184, false>(),
    kernel<1, 256, false>(), kernel<2, 136, false>(), kernel<2, 184, false>()};

struct Arrangement {
  const Kernel* kernel = nullptr;
  int share_outputs = 1, share_rows = 1, splits = 1;
  int64_t tiles = 0;  // of clusters
  double cost = 0;    // cycles
  int cluster() const { return share_outputs * share_rows * splits; }
};

// Blocks of outputs of all parts, each part's rounded up to what a cluster shares.
int64_t output_blocks(std::span<const ChunkPart> parts, int outputs_each, int shared) {
  int64_t blocks = 0;
  for (const ChunkPart& part : parts) {
    blocks += ceil_div(ceil_div(part.outputs, outputs_each), shared) * shared;
  }
  return blocks;
}

// Clusters that run at the same time: a device's processors come in groups, which clusters do not
// always fill.
int64_t clusters_at_once(Device& device, const Kernel& kernel, int cluster) {
  static std::mutex mutex;
  static std::map<std::tuple<int, const Kernel*, int>, int> known;
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

// Estimates: a processor multiplies 64 x 256 x 16 in 128 cycles and takes in 50 bytes a cycle.
Arrangement arrange(Device& device, int rows, int inputs, std::span<const ChunkPart> parts,
                    const Kernel& kernel, int share_outputs, int share_rows, int splits) {
  constexpr double kBytes = 50, kTileCycles = 3000, kRowCycles = 20, kSplitCycles = 3000;
  Arrangement a{&kernel, share_outputs, share_rows, splits};
  const int64_t row_groups = ceil_div(ceil_div(rows, kernel.rows), share_rows);
  a.tiles = output_blocks(parts, kernel.outputs(), share_outputs) / share_outputs * row_groups;
  const int64_t waves = ceil_div(a.tiles, clusters_at_once(device, kernel, a.cluster()));
  const auto steps = static_cast<double>(ceil_div(ceil_div(inputs, kWgmmaDepth), splits));
  const double bytes = (128.0 * kernel.blocks + kernel.rows) * kWgmmaDepth * 2;
  const double step = std::max(4.0 * kernel.blocks * kernel.rows, bytes / kBytes);
  a.cost = static_cast<double>(waves) *
               (steps * step + kTileCycles + kRowCycles * kernel.blocks * kernel.rows / splits) +
           (splits > 1 ? kSplitCycles : 0);
  return a;
}

Arrangement best_for(Device& device, int rows, int inputs, std::span<const ChunkPart> parts,
                     bool gated, int splits) {
  Arrangement best;
  for (const Kernel& kernel : kKernels) {
    if (kernel.gated != gated) continue;
    for (const int share_outputs : {1}) {
      for (const int share_rows : {1}) {
        if (share_outputs * share_rows * splits > kMostCluster) continue;
        const Arrangement a =
            arrange(device, rows, inputs, parts, kernel, share_outputs, share_rows, splits);
        if (!best.kernel || a.cost < best.cost) best = a;
      }
    }
  }
  return best;
}

Arrangement choose(Device& device, const ChunkProduct& product, std::span<const ChunkPart> parts,
                   bool gated) {
  int splits = 1;
  double least = best_for(device, kNominalRows, product.inputs, parts, gated, 1).cost;
  for (int more = 2; more <= kMostSplits && !gated; ++more) {
    const double cost = best_for(device, kNominalRows, product.inputs, parts, gated, more).cost;
    if (cost >= least) continue;
    least = cost;
    splits = more;
  }
  return best_for(device, product.rows, product.inputs, parts, gated, splits);
}

// (rows, inputs) of bf16, rows `stride` elements apart; boxes of `box_rows` x kWgmmaDepth.
CUtensorMap make_map(Device& device, const void* data, int64_t inputs, int64_t rows, int64_t stride,
                     int box_rows) {
  return make_tensor_map(device, {data, inputs, rows, stride * 2, box_rows}, "dense product");
}

void submit(Stream& stream, const ChunkProduct& product, std::span<const ChunkPart> parts,
            const void* up) {
  Device& device = stream.device();
  const Arrangement a = choose(device, product, parts, up != nullptr);
  const int outputs = a.kernel->outputs();
  WgmmaArgs args{};
  WgmmaMaps maps{};
  args.product = product;
  args.share_outputs = a.share_outputs;
  args.share_rows = a.share_rows;
  args.splits = a.splits;
  args.steps_each = static_cast<int>(ceil_div(ceil_div(product.inputs, kWgmmaDepth), a.splits));
  args.row_groups =
      static_cast<int>(ceil_div(ceil_div(product.rows, a.kernel->rows), a.share_rows));
  args.tiles = static_cast<int>(a.tiles);
  maps.x =
      make_map(device, product.x, product.inputs, product.rows, product.x_stride, a.kernel->rows);
  for (std::size_t i = 0; i < kWgmmaParts; ++i) {
    const std::size_t part = std::min(i, parts.size());
    args.first_block[i] =
        static_cast<int>(output_blocks(parts.first(part), outputs, a.share_outputs));
    if (part == parts.size()) continue;
    args.parts[i] = parts[i];
    maps.weights[i] = make_map(device, parts[i].weight, product.inputs, parts[i].outputs,
                               product.inputs, outputs);
  }
  args.first_block[kWgmmaParts] = static_cast<int>(output_blocks(parts, outputs, a.share_outputs));
  if (up) {
    maps.weights[1] =
        make_map(device, up, product.inputs, parts[0].outputs, product.inputs, outputs);
  }
  // Blocks stay for further tiles, unless each has its part of the inputs of one.
  const int64_t clusters =
      up ? std::min(a.tiles, clusters_at_once(device, *a.kernel, a.cluster())) : a.tiles;
  const Grid grid{dim3(static_cast<unsigned>(clusters * a.cluster())), dim3(kWgmmaThreads),
                  a.kernel->shared_bytes, static_cast<unsigned>(a.cluster())};
  launch(stream, grid, a.kernel->function, maps, args);
}

bool vectors(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool wgmma_takes(const Device& device, const ChunkProduct& product,
                 std::span<const ChunkPart> parts) {
  if (FRT_CUDA_ARCH != 90 || device.properties().capability != 90) return false;
  return product.rows > kLeastRows && product.inputs % 8 == 0 &&
         parts.size() <= static_cast<std::size_t>(kWgmmaParts) &&
         vectors(product.x, product.x_stride) &&
         std::all_of(parts.begin(), parts.end(), [](const ChunkPart& part) {
           return part.outputs % 8 == 0 && vectors(part.y, part.y_stride) &&
                  reinterpret_cast<uintptr_t>(part.weight) % 16 == 0;
         });
}

void wgmma_products(Stream& stream, const ChunkProduct& product, std::span<const ChunkPart> parts) {
  submit(stream, product, parts, nullptr);
}

void wgmma_gate_up(Stream& stream, const ChunkProduct& product, const ChunkPart& gate,
                   const void* up) {
  submit(stream, product, {&gate, 1}, up);
}

}  // namespace frt::cuda
