// SPDX-License-Identifier: Apache-2.0
// A mixture-of-experts block of 1 to 8 rows in one launch (sm_90): one block per SM, all of
// them there at once (CoResidentLaunch), so that they can wait for each other. Three phases:
//
//   enter   norm, computed by every block for itself; router logits, the shared expert's scale and
//           hidden values. Then every block selects the experts from all logits
//   hidden  silu(gate x) * (up x) of the selected experts; blocks have equal runs of units
//   down    a block has sixteen output columns, of every expert and of the shared one
//
// Work comes in units of sixteen weight rows: eight columns' gate and up rows, or sixteen rows of
// one matrix. One warp fetches the units' weights in this order through a ring, and only the ring
// and the choice tell it to wait: what enters is under way before the kernel in front has ended,
// and the first weights of `down` arrive while hidden values are exchanged. A copy is eight whole
// rows: one lane issues it, in about the time that 1 KB takes to arrive, so it must be larger than
// that. Sixteen warps multiply: all share the inputs of a unit, in `down` four do. Results that
// other blocks need go through cells (fused_ring.cuh), twice.
//
// The sums of a row are formed in the same order whatever the other rows are.
//
// Floor: Qwen3.6-35B-A3B, one row: 57.7 MB in bf16, 12.4 us at 4.65 TB/s; 29.4 MB in FP8, 6.3 us;
// and some 6 us of norm, choice and two exchanges, during which only the ring fills.
#include "../common/arch.cuh"
#include "../common/async_copy.cuh"
#include "../common/launch.cuh"
#include "fused_units.cuh"

namespace frt::cuda {
namespace {

#if FRT_ARCH_CLUSTERS

// ---- the fetching warp -------------------------------------------------------------------------

// Units `first` to first + count - 1 into the next stage.
template <MoeFormat kFormat>
__device__ __forceinline__ void fetch_stage(const FusedArgs& args, const Ring& ring, Place& place,
                                            const Choice& choice, int phase, int first, int count) {
  const int lane = threadIdx.x % 32;
  const bool own = lane < count;
  const Unit unit = unit_of(args, choice, phase, own ? first + lane : first);
  const int low = unit.rows(false) * unit.row_bytes, high = unit.rows(true) * unit.row_bytes;
  const int bytes = __reduce_add_sync(~0u, own ? low + high : 0);
  uint64_t* full = ring.full + place.stage;
  barrier_wait(ring.empty + place.stage, place.parity ^ 1);
  if (lane == 0) barrier_expect(full, bytes);
  __syncwarp();
  uint8_t* stage = ring.memory + place.stage * ring.stage_bytes;
  if (own) {
    const uint32_t target = shared_address(stage + lane * args.layout.item_bytes);
    copy_bulk(target, unit.data(false), low, full);
    if (high > 0) copy_bulk(target + 8 * unit.row_bytes, unit.data(true), high, full);
  }
  if constexpr (kFormat == MoeFormat::kFp8) {
    const int blocks = args.layout.scale_blocks;
    uint8_t* words = ring.memory + args.layout.scales + place.stage * args.layout.scale_bytes;
#pragma unroll 1
    for (int i = lane; i < count * 2 * blocks; i += 32) {
      const Unit of = unit_of(args, choice, phase, first + i / (2 * blocks));
      const int col = i % blocks * 128;
      const bool of_high = i / blocks % 2 != 0;
      if (of.shift == 0 || col >= of.row_bytes || of.rows(of_high) == 0) continue;
      const auto at = reinterpret_cast<std::uintptr_t>(of.scales(of_high) +
                                                       (col >> of.shift) * (of.scale_bf16 ? 2 : 4));
      copy_async_cached<4>(shared_address(words + i * 4),
                           reinterpret_cast<const void*>(at & ~std::uintptr_t{3}));
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(full))
                 : "memory");
  }
  place.advance(ring.stages);
}

template <MoeFormat kFormat>
__device__ __forceinline__ void fetch_all(const FusedArgs& args, const Ring& ring,
                                          const Shared& shared) {
  const int lane = threadIdx.x % 32;
  int rows = 0;
  Place place;
#pragma unroll 1
  for (int phase = kEnter; phase <= kDown; ++phase) {
    if (phase == kHidden) {
      const int column = static_cast<int>(blockIdx.x) * kFusedColumns + lane;
      if (args.shared_width > 0 && lane < kFusedColumns && column < args.inputs) {
        const int64_t bytes = args.shared_down.row_bytes;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(args.shared_down.data +
                                                                        column * bytes),
                     "r"(static_cast<uint32_t>(bytes))
                     : "memory");
      }
      pdl_wait();
      rows = active_rows(args);
      asm volatile("bar.sync 2, %0;" ::"n"(kFusedThreads) : "memory");  // the choice is made
    }
    const Run run = run_of(args, shared.choice, phase);
    const int items = down_items(args, shared.choice);
    int step = run.step;
#pragma unroll 1
    for (int i = run.begin; i < run.end; i += step) {
      if (phase == kDown) step = min(args.layout.items, items - i % items);
      fetch_stage<kFormat>(args, ring, place, shared.choice, phase, i, phase == kDown ? step : 1);
    }
  }
  // residual += delta: every block that read the residual has published its results by now.
  asm volatile("bar.sync 3, %0;" ::"n"(kFusedThreads) : "memory");
  if (!args.norm.residual || !args.norm.delta) return;
  const int all = rows * (args.inputs / 8);
#pragma unroll 1
  for (int i = blockIdx.x * 32 + lane; i < all; i += gridDim.x * 32) {
    float values[8];
    load_residual(args.norm, static_cast<int64_t>(i) * 8, values);
    store_residual(args.norm, static_cast<int64_t>(i) * 8, values);
  }
}

// ---- the rows of x -----------------------------------------------------------------------------

// A thread has the same eight columns of every row it works on: their norm weights are loaded
// before the kernel in front has ended.
struct Eight {
  int column, row, rows;  // the first row, and how many are worked on at a time
  float weights[8];

  __device__ __forceinline__ explicit Eight(const FusedArgs& args) {
    const int warps = (args.inputs / 8 + 31) / 32;
    column = static_cast<int>(threadIdx.x) % (warps * 32) * 8;
    row = static_cast<int>(threadIdx.x) / (warps * 32);
    rows = kFusedWarps / warps;
    if (!args.norm.residual || column >= args.inputs) return;
    const auto* four = reinterpret_cast<const float4*>(args.norm.weight + column);
    const float4 low = four[0], high = four[1];
    const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) weights[i] = all[i];
  }
};

// All args.rows, whether they are active or not: how many are is being read meanwhile.
__device__ __forceinline__ void load_rows(const FusedArgs& args, const Eight& eight, int active,
                                          uint32_t* x, Shared& shared) {
  const int warp = threadIdx.x / 32, pitch = padded_words(args.inputs);
  const int warps = kFusedWarps / eight.rows;
  // Whoever writes x publishes results: it is seen to have read the residual.
  const int writers = min(static_cast<int>(gridDim.x), enter_units(args));
#pragma unroll 1
  for (int first = 0; first < args.rows; first += eight.rows) {
    const int row = first + eight.row;
    const bool inside = eight.row < eight.rows && row < args.rows && eight.column < args.inputs;
    const int64_t at = static_cast<int64_t>(row) * args.inputs + eight.column;
    uint4 packed = make_uint4(0, 0, 0, 0);
    if (args.norm.residual) {
      float values[8] = {}, squares = 0.0f;
      if (inside) load_residual(args.norm, at, values);
#pragma unroll
      for (int i = 0; i < 8; ++i) squares = fmaf(values[i], values[i], squares);
      squares = warp_sum(squares);
      if (threadIdx.x % 32 == 0) shared.squares[warp] = squares;
      wait_multipliers();
      float sum = 0.0f;
      for (int w = 0; w < warps && inside; ++w) sum += shared.squares[eight.row * warps + w];
      const float factor = rsqrtf(sum / static_cast<float>(args.inputs) + args.norm.epsilon);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = values[i] * factor * eight.weights[i];
      packed = pack_bf16(values);
      if (inside && row < active && blockIdx.x == row % writers) {
        *reinterpret_cast<uint4*>(args.x + at) = packed;
      }
    } else if (inside) {
      packed = *reinterpret_cast<const uint4*>(args.x + at);
    }
    if (inside) *reinterpret_cast<uint4*>(x + row * pitch + eight.column / 2) = packed;
    wait_multipliers();  // squares may be written again
  }
}

// ---- the choice --------------------------------------------------------------------------------

__device__ __forceinline__ void select(const FusedArgs& args, int rows, float* logits,
                                       Choice& choice, uint32_t number) {
  take_cells(args.logit_cells, 1, rows * args.experts, 0, number,
             reinterpret_cast<uint32_t*>(logits));
  wait_multipliers();
  const int row = threadIdx.x / 32;
  if (row < rows) {
    select_row(logits + row * args.experts, args.experts, args.top_k, args.normalise,
               choice.ids + row * args.top_k, choice.weights + row * args.top_k);
  }
  wait_multipliers();
  group_assignments(rows * args.top_k, choice);
  asm volatile("bar.arrive 2, %0;" ::"n"(kFusedThreads) : "memory");
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < rows * args.top_k) {
    args.ids[threadIdx.x] = choice.ids[threadIdx.x];
    args.weights[threadIdx.x] = choice.weights[threadIdx.x];
  }
}

// ---- enter, hidden -----------------------------------------------------------------------------

__device__ __noinline__ float factor_of(const MoeMatrix& matrix, int expert, int row) {
  return moe_row(matrix, expert, row).factor;
}

// c += this warp's share of a unit, a `part` of `parts` of its columns.
template <MoeFormat kFormat>
__device__ __forceinline__ void multiply_unit(const FusedArgs& args, const Unit& unit,
                                              const uint8_t* data, const uint8_t* scales, int part,
                                              int parts, const uint32_t* x, float (&c)[4]) {
  const bool plain = kFormat == MoeFormat::kBf16 || unit.low->type == WeightType::kBf16;
  const int share = (unit.row_bytes / parts + 63) / 64 * 64;
  const int begin = part * share, end = min(unit.row_bytes, begin + share);
  const auto* words = reinterpret_cast<const uint32_t*>(scales);
  const int blocks = args.layout.scale_blocks;
  if (plain) {
#pragma unroll 2
    for (int at = begin; at < end; at += 64) {
      multiply_piece<MoeFormat::kBf16>(unit, data, words, blocks, at, x, c);
    }
  } else {
#pragma unroll 2
    for (int at = begin; at < end; at += 64) {
      multiply_piece<kFormat>(unit, data, words, blocks, at, x, c);
    }
  }
}

// Threads 0 .. 127: thread i has the sum of row i / 16 of the unit's low half, or of its high half
// if i / 2 is odd, with member i / 4 % 4 * 2 + i % 2.
__device__ __forceinline__ void tell(const FusedArgs& args, int phase, const Unit& unit, float sum,
                                     const int* members, uint32_t number) {
  const int i = static_cast<int>(threadIdx.x);
  const int member = members[i / 4 % 4 * 2 + i % 2];
  const bool high = i / 2 % 2 != 0;
  const int row = (high ? unit.high_row : unit.low_row) + i / 16;
  if (unit.factored) sum *= factor_of(high ? *unit.high : *unit.low, unit.expert, row);
  if (unit.low != unit.high) {
    const float value = gated_bf16(sum, __shfl_down_sync(~0u, sum, 2));
    const float next = __shfl_down_sync(~0u, value, 16);  // the next column's
    if (high || i / 16 % 2 != 0 || member < 0) return;
    uint64_t* cells = phase == kHidden ? args.hidden_cells : args.shared_cells;
    const int width = phase == kHidden ? args.width : args.shared_width;
    const __nv_bfloat162 pair = __floats2bfloat162_rn(value, next);
    write_cell(cells + (member * width + row) / 2, *reinterpret_cast<const uint32_t*>(&pair),
               number);
  } else if (member >= 0 && row < unit.low->rows) {
    if (unit.low == &args.router) {
      const int64_t at = static_cast<int64_t>(member) * args.experts + row;
      write_cell(args.logit_cells + at, __float_as_uint(sum), number);
      args.logits[at] = sum;
    } else {
      write_cell(args.scale_cells + member, __float_as_uint(sum), number);
    }
  }
}

// ---- down --------------------------------------------------------------------------------------

// Results: (assignment, or assignments + row; part; column).
template <MoeFormat kFormat>
__device__ __forceinline__ void down(const FusedArgs& args, const Ring& ring, Place& place,
                                     const Shared& shared, int rows, const uint32_t* routed_rows,
                                     const uint32_t* shared_rows, float* results) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int quad = warp / kFusedParts, part = warp % kFusedParts;
  const Choice& choice = shared.choice;
  const int assignments = rows * args.top_k, items = down_items(args, choice);
  const bool has_shared = args.shared_width > 0;
  const Run run = run_of(args, choice, kDown);
  int item = 0, count = 0;
#pragma unroll 1
  for (int i = run.begin; i < run.end; i += count) {
    count = min(args.layout.items, items - item);
    const bool own = quad < count;
    const int mine_item = own ? item + quad : item;
    const Unit unit = unit_of(args, choice, kDown, i + (own ? quad : 0));
    const bool is_shared = has_shared && mine_item == 0;
    const int* members =
        is_shared ? shared.rows : choice.members[has_shared ? mine_item - 1 : mine_item];
    const int mine = members[lane / 4];
    const uint32_t* x = nullptr;
    if (mine >= 0) {
      x = is_shared ? shared_rows + mine * padded_words(args.shared_width)
                    : routed_rows + mine * padded_words(args.width);
    }
    float c[4] = {};
    barrier_wait(ring.full + place.stage, place.parity);
    if (own) {
      multiply_unit<kFormat>(
          args, unit, ring.memory + place.stage * ring.stage_bytes + quad * args.layout.item_bytes,
          ring.memory + args.layout.scales + place.stage * args.layout.scale_bytes +
              quad * 2 * args.layout.scale_blocks * 4,
          part, kFusedParts, x, c);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty + place.stage);
    place.advance(ring.stages);
    if (own) {
      if (unit.factored) {
        const int last = unit.low->rows - 1, row = unit.low_row + lane / 4;
        const float low = factor_of(*unit.low, unit.expert, min(row, last));
        const float high = factor_of(*unit.high, unit.expert, min(row + 8, last));
        c[0] *= low;
        c[1] *= low;
        c[2] *= high;
        c[3] *= high;
      }
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const int member = members[lane % 4 * 2 + v];
        if (member < 0) continue;
        const int index = is_shared ? assignments + member : member;
        float* result = results + (index * kFusedParts + part) * kFusedColumns + lane / 4;
        result[0] = c[v];
        result[8] = c[2 + v];
      }
    }
    item += count;
    if (item < items) continue;
    item = 0;
    wait_multipliers();
    for (int task = threadIdx.x; task < rows * kFusedColumns; task += kFusedMultipliers) {
      const int row = task / kFusedColumns, index = task % kFusedColumns;
      const auto result = [&](int at) {
        float sum = 0.0f;
#pragma unroll
        for (int p = 0; p < kFusedParts; ++p) {
          sum += results[(at * kFusedParts + p) * kFusedColumns + index];
        }
        return sum;
      };
      float sum = 0.0f;
#pragma unroll 4
      for (int a = row * args.top_k; a < (row + 1) * args.top_k; ++a) {
        sum = fmaf(choice.weights[a], result(a), sum);
      }
      if (has_shared) sum = fmaf(sigmoid(shared.scales[row]), result(assignments + row), sum);
      if (unit.low_row + index < args.inputs) {
        args.y[static_cast<int64_t>(row) * args.inputs + unit.low_row + index] =
            from_float<bf16>(sum);
      }
    }
    wait_multipliers();  // results may be written again
  }
}

// ---- the multiplying warps ---------------------------------------------------------------------

template <MoeFormat kFormat>
__device__ __forceinline__ void multiply_all(const FusedArgs& args, const Ring& ring,
                                             uint8_t* memory, Shared& shared) {
  auto* x = reinterpret_cast<uint32_t*>(memory + args.layout.x);
  auto* routed_rows = reinterpret_cast<uint32_t*>(memory + args.layout.hidden);
  auto* sums = reinterpret_cast<float*>(memory + args.layout.sums);
  const int lane = threadIdx.x % 32;
  const Eight eight(args);
  pdl_wait();
  const uint32_t number = args.numbers[blockIdx.x] + 1;
  const int rows = active_rows(args);
  if (threadIdx.x < kFusedRows) {
    const int row = static_cast<int>(threadIdx.x);
    shared.rows[row] = row < rows ? row : -1;
  }
  load_rows(args, eight, rows, x, shared);
  Place place;
  int turn = 0;
#pragma unroll 1
  for (int phase = kEnter; phase <= kHidden; ++phase) {
    if (phase == kHidden) {
      wait_multipliers();  // logits take the place of sums
      select(args, rows, sums, shared.choice, number);
    }
    const Run run = run_of(args, shared.choice, phase);
#pragma unroll 1
    for (int i = run.begin; i < run.end; i += run.step, turn ^= 1) {
      const Unit unit = unit_of(args, shared.choice, phase, i);
      const int* members =
          phase == kHidden ? shared.choice.members[i / (args.width / 8)] : shared.rows;
      const int mine = members[lane / 4];
      const int row = phase == kHidden ? mine / args.top_k : mine;
      float c[4] = {};
      barrier_wait(ring.full + place.stage, place.parity);
      multiply_unit<kFormat>(
          args, unit, ring.memory + place.stage * ring.stage_bytes,
          ring.memory + args.layout.scales + place.stage * args.layout.scale_bytes,
          threadIdx.x / 32, kFusedWarps, mine >= 0 ? x + row * padded_words(args.inputs) : nullptr,
          c);
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.empty + place.stage);
      place.advance(ring.stages);
      float* own = sums + turn * kFusedWarps * 128;
      reinterpret_cast<float4*>(own)[threadIdx.x] = make_float4(c[0], c[1], c[2], c[3]);
      wait_multipliers();
      if (threadIdx.x < 128) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kFusedWarps; ++w) sum += own[w * 128 + threadIdx.x];
        tell(args, phase, unit, sum, members, number);
      }
    }
  }
  wait_multipliers();  // hidden rows take the place of x
  uint32_t* shared_rows = routed_rows + rows * args.top_k * padded_words(args.width);
  if (args.shared_width > 0) {
    take_cells(args.shared_cells, rows, args.shared_width / 2, padded_words(args.shared_width),
               number, shared_rows);
    take_cells(args.scale_cells, 1, rows, 0, number, reinterpret_cast<uint32_t*>(shared.scales));
  }
  take_cells(args.hidden_cells, rows * args.top_k, args.width / 2, padded_words(args.width), number,
             routed_rows);
  wait_multipliers();
  asm volatile("bar.arrive 3, %0;" ::"n"(kFusedThreads) : "memory");
  down<kFormat>(args, ring, place, shared, rows, routed_rows, shared_rows,
                reinterpret_cast<float*>(memory + args.layout.results));
  if (threadIdx.x == 0) args.numbers[blockIdx.x] = number;
}

#endif

template <MoeFormat kFormat>
__global__ void __launch_bounds__(kFusedThreads, 1)
    fused_kernel(const __grid_constant__ FusedArgs given) {
#if FRT_ARCH_CLUSTERS
  extern __shared__ uint4 dynamic[];
  __shared__ Shared shared;
  __shared__ uint64_t full[kFusedStages], empty[kFusedStages];
  // Matrices are picked by pointer, which parameters answer slowly.
  __shared__ alignas(16) uint8_t copy[sizeof(FusedArgs)];
  static_assert(sizeof(FusedArgs) % 4 == 0);
#pragma unroll 1
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(FusedArgs) / 4); i += kFusedThreads) {
    reinterpret_cast<uint32_t*>(copy)[i] = reinterpret_cast<const uint32_t*>(&given)[i];
  }
  const auto& args = *reinterpret_cast<const FusedArgs*>(copy);
  auto* memory = reinterpret_cast<uint8_t*>(dynamic);
  const Ring ring{memory, full, empty, given.layout.stages, given.layout.stage_bytes};
  // The next kernel starts when all blocks of this one have come here: none can be kept out by it.
  pdl_trigger();
  if (threadIdx.x < ring.stages) {
    barrier_init(full + threadIdx.x, kFormat == MoeFormat::kFp8 ? 33 : 1);
    barrier_init(empty + threadIdx.x, kFusedWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= kFusedMultipliers) {
    fetch_all<kFormat>(args, ring, shared);
  } else {
    multiply_all<kFormat>(args, ring, memory, shared);
  }
#endif
}

}  // namespace

void launch_fused(Stream& stream, bool fp8, int blocks, const FusedArgs& args) {
  auto* kernel = fp8 ? fused_kernel<MoeFormat::kFp8> : fused_kernel<MoeFormat::kBf16>;
  const auto bytes = static_cast<std::size_t>(args.layout.bytes);
  // A cooperative launch would make sure that all blocks are there, too, but would not start before
  // the kernel in front has ended.
  const CoResidentLaunch co_resident(&stream);
  launch(stream, {dim3(static_cast<unsigned>(blocks)), dim3(kFusedThreads), bytes}, kernel, args);
}

}  // namespace frt::cuda
