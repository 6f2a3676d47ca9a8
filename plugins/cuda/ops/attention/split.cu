// SPDX-License-Identifier: Apache-2.0
// Attention of a few rows per sequence (decode, verify): positions split over blocks.
//
// Floor: every key and value row is read once, 2 * kv_heads * head_dim * bytes per position (27B,
// bf16: 4 KB; 8192 positions in 7.2 us at 4.65 TB/s). At short contexts latency is all there is.
//
// A block takes one split of the positions for one key/value head and eight of its queries (a
// query is a row and a head of the group: one row of six or eight heads fills a block). Its warps
// take 16 positions at a time, each with its own running maximum and sums, and no barrier between
// them: keys and values go from memory straight into the registers of the tensor core fragments
// (split.cuh), and the next tile is loaded while this one is multiplied, so a warp has 8
// to 16 KB in flight. Blocks are small, so that two or three share an SM and one streams
// while another begins or ends.
//
// The warps' results are merged in shared memory, the splits' by a second kernel, in a fixed order.
// Where splits begin depends on the positions a row sees alone (split_length), so a row's bits
// depend neither on its batch nor on the rows beside it.
//
// With an append (the fused variant) each block norms and rotates its own queries, and the block
// whose split holds a new position makes its key and value, stores them, and takes them into its
// first tile from shared memory.
//
// Behind a product the kernel is let in when all that is older is complete
// (Stream::early_reads_safe()): then everything but the new rows is under way, or made, before the
// wait.
#include <algorithm>

#include "../common/mma.cuh"
#include "split_rows.cuh"

namespace frt::cuda {
namespace {

using namespace split;

__device__ __forceinline__ void add_weighted(float4& to, const float4& from, float weight) {
  to.x += from.x * weight;
  to.y += from.y * weight;
  to.z += from.z * weight;
  to.w += from.w * weight;
}

using Gate = Vector<bf16, 4>;

__device__ __forceinline__ Gate load_gate(const frt_attention_args& args, int64_t row, int head,
                                          int at) {
  Gate gate{};
  if (args.gate) {
    const bf16* from = static_cast<const bf16*>(args.gate) + row * args.gate_row_stride +
                       head * args.gate_head_stride + at;
    *reinterpret_cast<uint2*>(&gate) = __ldcg(reinterpret_cast<const uint2*>(from));
  }
  return gate;
}

// y = o * factor, times sigmoid(gate): four elements.
__device__ __forceinline__ void store_result(const frt_attention_args& args, int64_t row, int head,
                                             int at, const float4& o, float factor,
                                             const Gate& gate) {
  float value[4] = {o.x * factor, o.y * factor, o.z * factor, o.w * factor};
  if (args.gate) {
#pragma unroll
    for (int i = 0; i < 4; ++i) value[i] *= sigmoid(to_float(gate.values[i]));
  }
  store_floats<4>(static_cast<bf16*>(args.y) + (row * args.heads + head) * args.head_dim + at,
                  value, 1.0f);
}

template <int kDim, class KV>
__global__ void __launch_bounds__(kWarps * 32, sizeof(KV) == 2 ? 2 : 3)
    split_kernel(const __grid_constant__ SplitArgs p) {
  using S = Shape<kDim, KV>;
  __shared__ Shared<kDim, KV> shared;
  const frt_attention_args& args = p.attention;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int kv_head = blockIdx.y, b = blockIdx.z;
  Sequence sequence{};
  if (p.early) sequence = load_sequence(args.sequences, b);
  const float frequency = first_frequency(p);
  const int group = p.group;
  const int split = p.blocks == 1 ? blockIdx.x : static_cast<int>(blockIdx.x) / p.blocks;
  const int first = (static_cast<int>(blockIdx.x) - split * p.blocks) * kQueries;
  const auto row_of = [&](int query) { return args.sequences.rows == 1 ? 0 : query / group; };

  // With pages: where this warp's first rows are is asked before the wait, by a length and a
  // position that may be of the step before. Most often that is the right page, and the table
  // costs no time.
  const bool in_pages = args.pages.table != nullptr;
  int expected = -1, page = 0;
  if (in_pages && !p.early) {
    const int slot = __ldcg(args.sequences.slot + b);
    const int seen = seen_positions(__ldcg(args.sequences.position + b), 0, args.max_rows);
    if (__ldcg(args.sequences.length + b) > 0) {
      expected = min(split * split_length(seen, p.most) + warp * kTile, args.max_rows - 1);
      page = SlotRows(args.pages, slot).page(expected);
    }
  }
  LaneNorm norm{}, k_norm{};
  if (p.fused) {
    norm = load_norm(p.append, p.append.q_norm);
    k_norm = load_norm(p.append, p.append.k_norm);
  }
  // The trigger comes after the wait: the merging kernel relies on it that whatever was written
  // before this kernel is there.
  const auto wait = [] {
    pdl_wait();
    pdl_trigger();
  };
  if (!p.early) {
    wait();
    sequence = load_sequence(args.sequences, b);
  }
  const int count = min(kQueries, sequence.length * group - first);
  const int row = row_of(first), row_end = row_of(first + count - 1) + 1;
  int part = 0;
  Range range{};
  if (count > 0) range = range_of(p, sequence, row, row_end, split, 0);
  if (count > 0 && range.start >= range.stop) {
    part = 1;
    range = range_of(p, sequence, row, row_end, split, 1);
  }
  if (range.start >= range.stop) {
    if (p.early) wait();
    return;
  }

  const SlotRows rows(args.pages, sequence.slot);
  const int64_t stride = static_cast<int64_t>(args.kv_heads) * S::kBytes;
  uint32_t k[2][S::kKeyWords];
  uint32_t v[4][S::kValueWords];
  // What stands in the cache already is under way while the queries are made.
  int next = range.start + warp * kTile;
  if (!in_pages || !rows.same_page(next, expected)) {
    page = rows.page(min(next, range.stop - 1));
  }
  constexpr int kStep = kWarps * kTile;
  PageWalk<kStep> walk;
  walk.begin(rows, page, next, range.stop, stride, kv_head * S::kBytes);
  const auto load_next_keys = [&] {
    load_keys<kDim, KV>(k, walk.rows_of(args.keys), stride, next, range.stop);
  };
  const auto load_next_values = [&] {
    load_values<kDim, KV>(v, walk.rows_of(args.values), stride, next, range.stop);
  };
  if (next < range.stop) {
    load_next_keys();
    load_next_values();
  }
  if (p.fused) {
    Turns turns{shared.fresh.turns[warp], frequency, -1};
    turns.make(p.append, sequence.position, row_of(first + min(warp, count - 1)));
    if (p.early) wait();
    uint4 raw[kWarpQueries];
    load_queries<kDim>(p, b, kv_head, first, count, raw);
    NewRows made(p, sequence, b, kv_head, range, k_norm);
    made.load();
    rotate_queries<kDim, KV>(p, b, kv_head, first, count, sequence.position, split == 0, raw, norm,
                             shared.queries, turns);
    made.store(shared, turns);
    if (part == 0) {
      NewRows later(p, sequence, b, kv_head, range_of(p, sequence, row, row_end, split, 1), k_norm);
      later.load();
      later.store(shared, turns);
    }
  } else {
    if (p.early) wait();
    fill_queries<kDim, KV>(p, b, kv_head, first, count, shared.queries);
  }
  __syncthreads();
  if (p.fused) {
    if (next < range.stop && min(next + kTile, range.stop) > sequence.position) {
      take_new_keys<kDim, KV>(k, shared.fresh.keys[0], sequence.position, sequence.length, next,
                              range.stop);
      take_new_values<kDim, KV>(v, shared.fresh.values[0], sequence.position, sequence.length, next,
                                range.stop);
    }
    __syncthreads();  // sums take their place
  }

  const float scale = args.scale * (sizeof(KV) == 1 ? args.k_scale : 1.0f) * 1.4426950408889634f;
  while (true) {
    int visible[2];  // positions that queries 2t, 2t+1 see
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = 2 * t + i, r = row_of(first + n);
      const bool ours = n < count && r >= range.row && r < range.row_end;
      visible[i] = ours ? seen_positions(sequence.position, r, args.max_rows) : 0;
    }
    float o[kDim / 16][4] = {};
    float largest[2] = {-INFINITY, -INFINITY};  // of queries 2t, 2t+1
    float sum[2] = {};                          // over the positions this lane scores
    while (next < range.stop) {
      const int position = next;
      next += kStep;
      walk.advance(rows, next, range.stop, stride, kv_head * S::kBytes);
      float s[4];
      score<kDim, KV>(s, k, shared.queries);
      if (next < range.stop) load_next_keys();
      float shrink[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[i] = position + g < visible[i] ? s[i] * scale : -INFINITY;
        s[2 + i] = position + g + 8 < visible[i] ? s[2 + i] * scale : -INFINITY;
        float now = fmaxf(s[i], s[2 + i]);
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          now = fmaxf(now, __shfl_xor_sync(~0u, now, offset));
        }
        now = fmaxf(now, largest[i]);
        const float from = now == -INFINITY ? 0.0f : now;
        shrink[i] = exp2_fast(largest[i] - from);
        largest[i] = now;
        s[i] = exp2_fast(s[i] - from);
        s[2 + i] = exp2_fast(s[2 + i] - from);
        sum[i] = sum[i] * shrink[i] + (s[i] + s[2 + i]);
      }
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
        o[m][0] *= shrink[0];
        o[m][1] *= shrink[1];
        o[m][2] *= shrink[0];
        o[m][3] *= shrink[1];
      }
      add_values<kDim, KV>(o, v, transpose_8x8(pack_bf16(s[0], s[1])),
                           transpose_8x8(pack_bf16(s[2], s[3])));
      if (next < range.stop) load_next_values();
    }

    // Merge the warps that had a tile.
    const int warps = min(kWarps, (range.stop - range.start + kTile - 1) / kTile);
    if (warp < warps) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          sum[i] += __shfl_xor_sync(~0u, sum[i], offset);
        }
        const int n = 2 * t + i;
        if (g == 0) shared.states[warp][n] = make_float2(largest[i], sum[i]);
        float* to = shared.sums[warp][n];
        // Tile m of the products holds dimensions 2 (m % half), + 1 of the lane's elements.
        constexpr int kHalf = S::kValueElements / 2;
#pragma unroll
        for (int m = 0; m < kDim / 16; m += 2) {
          const int at = m / kHalf * 8 * S::kValueElements + g * S::kValueElements + m % kHalf * 2;
          *reinterpret_cast<float4*>(to + at) =
              make_float4(o[m][i], o[m][2 + i], o[m + 1][i], o[m + 1][2 + i]);
        }
      }
    }
    __syncthreads();
    for (int n = warp; n < count; n += kWarps) {
      const int query = first + n, r = row_of(query);
      if (r < range.row || r >= range.row_end) continue;
      const int seen = seen_positions(sequence.position, r, args.max_rows);
      if (range.start >= seen) continue;
      float most = -INFINITY, total = 0, weights[kWarps];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        weights[w] = w < warps ? shared.states[w][n].x : -INFINITY;
        most = fmaxf(most, weights[w]);
      }
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        weights[w] = exp2_fast(weights[w] - most);
        if (w < warps) total += shared.states[w][n].y * weights[w];
      }
      const int64_t out = static_cast<int64_t>(b) * args.sequences.rows + r;
      const int head = kv_head * group + query - r * group;
      const int64_t index = (out * args.heads + head) * p.room + split;
      for (int at = lane * 4; at < kDim; at += 128) {
        float4 merged = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          if (w >= warps) break;
          add_weighted(merged, *reinterpret_cast<const float4*>(shared.sums[w][n] + at),
                       weights[w]);
        }
        if (seen <= range.length) {
          const float v_scale = sizeof(KV) == 1 ? args.v_scale : 1.0f;
          store_result(args, out, head, at, merged, v_scale / total,
                       load_gate(args, out, head, at));
        } else {
          *reinterpret_cast<float4*>(p.parts + index * kDim + at) = merged;
          if (at == 0) p.states[index] = make_float2(most, total);
        }
      }
    }
    if (part == 1) return;
    part = 1;
    range = range_of(p, sequence, row, row_end, split, 1);
    if (range.start >= range.stop) return;
    __syncthreads();  // the sums are free again
    next = range.start + warp * kTile;
    walk.begin(rows, rows.page(min(next, range.stop - 1)), next, range.stop, stride,
               kv_head * S::kBytes);
    if (next < range.stop) {
      load_next_keys();
      load_next_values();
    }
  }
}

// Merges the splits of a row and head: every strand of threads those of its turn in their order,
// then the strands in theirs. Before the wait it reads what no other kernel is writing by then:
// this kernel is let in when the blocks of split_kernel are past their own wait. (It reads past the
// first cache, which may be older.)
constexpr int kMergeThreads = 256;
constexpr int kMostSplits = 64;

template <int kDim>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ SplitArgs p) {
  constexpr int kColumns = kDim / 4;
  constexpr int kStrands = kMergeThreads / kColumns;
  constexpr int kAhead = 8;
  __shared__ float weights[kMostSplits];
  __shared__ float4 strands[kMergeThreads];
  const frt_attention_args& args = p.attention;
  const int head = blockIdx.x, row = blockIdx.y, b = blockIdx.z;
  const int lane = threadIdx.x % 32;
  const int column = threadIdx.x % kColumns, strand = threadIdx.x / kColumns;
  pdl_trigger();
  const bool active = row < min(__ldcg(args.sequences.length + b), args.sequences.rows);
  const int seen = seen_positions(__ldcg(args.sequences.position + b), row, args.max_rows);
  const int length = split_length(seen, p.most);
  const int splits = active ? (seen + length - 1) / length : 0;
  const int64_t out = static_cast<int64_t>(b) * args.sequences.rows + row;
  const Gate gate = active && strand == 0 ? load_gate(args, out, head, column * 4) : Gate{};
  const int64_t index = (out * args.heads + head) * p.room;
  const float4* parts = reinterpret_cast<const float4*>(p.parts + index * kDim) + column;
  // The instruction-cache warm-up comes first, on nothing (common/norm.cu).
#pragma unroll 1
  for (bool live = splits < 2;; live = true) {
    if (live) {
      pdl_wait();
      if (splits < 2) return;
    }
    const int there = live ? splits : 0;
    float2 state[kMostSplits / 32];
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      const int s = lane + 32 * i;
      state[i] = s < there ? __ldcg(p.states + index + s) : make_float2(-INFINITY, 0);
      most = fmaxf(most, state[i].x);
    }
    float4 ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int s = strand + i * kStrands;
      ahead[i] = s < there ? __ldcg(parts + s * kColumns) : make_float4(0, 0, 0, 0);
    }
    most = warp_max(most);
    float total = 0;
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      const float weight = exp2_fast(state[i].x - most);
      if (threadIdx.x < 32) weights[lane + 32 * i] = weight;
      total += weight * state[i].y;
    }
    total = warp_sum(total);
    __syncthreads();

    float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int s = strand + i * kStrands;
      if (s < splits) add_weighted(o, ahead[i], weights[s]);
    }
    for (int s = strand + kAhead * kStrands; s < there; s += kStrands) {
      add_weighted(o, __ldcg(parts + s * kColumns), weights[s]);
    }
    strands[threadIdx.x] = o;
    __syncthreads();
    if (strand == 0) {
#pragma unroll
      for (int i = 1; i < kStrands; ++i) add_weighted(o, strands[i * kColumns + column], 1.0f);
      const float v_scale = args.kv_dtype == FRT_DTYPE_F8_E4M3 ? args.v_scale : 1.0f;
      if (live) store_result(args, out, head, column * 4, o, v_scale / total, gate);
    }
    if (live) return;
  }
}

template <int kDim, class KV>
void launch_shape(Stream& stream, const SplitArgs& p) {
  Grid grid;
  grid.blocks =
      dim3(static_cast<unsigned>(p.blocks * p.room), static_cast<unsigned>(p.attention.kv_heads),
           static_cast<unsigned>(p.attention.sequences.count));
  grid.threads = dim3(kWarps * 32);
  launch(stream, grid, split_kernel<kDim, KV>, p);
  if (p.room < 2) return;
  Grid merge;
  merge.blocks = dim3(static_cast<unsigned>(p.attention.heads),
                      static_cast<unsigned>(p.attention.sequences.rows),
                      static_cast<unsigned>(p.attention.sequences.count));
  merge.threads = dim3(kMergeThreads);
  launch(stream, merge, merge_kernel<kDim>, p);
}

template <int kDim>
void launch_dim(Stream& stream, const SplitArgs& p) {
  if (p.attention.kv_dtype == FRT_DTYPE_BF16) {
    launch_shape<kDim, bf16>(stream, p);
  } else {
    launch_shape<kDim, f8e4m3>(stream, p);
  }
}

}  // namespace

void launch_split(Stream& stream, const frt_attention_args& args,
                  const frt_attention_append_args* append) {
  SplitArgs p{};
  p.attention = args;
  p.fused = append != nullptr;
  if (append) p.append = *append;
  // Enough blocks to fill a large device at one sequence, few enough that merging is cheap.
  p.most = std::clamp(128 / args.kv_heads, 16, kMostSplits);
  p.room = static_cast<int>(std::min<int64_t>(p.most, ceil_div(args.max_rows, kLeastSplit)));
  const int64_t states =
      static_cast<int64_t>(args.sequences.count) * args.sequences.rows * args.heads * p.room;
  if (p.room > 1) {
    const std::size_t parts = static_cast<std::size_t>(states * args.head_dim) * sizeof(float);
    auto* scratch = static_cast<std::byte*>(
        stream.scratch(parts + static_cast<std::size_t>(states) * sizeof(float2)));
    p.parts = reinterpret_cast<float*>(scratch);
    p.states = reinterpret_cast<float2*>(scratch + parts);
  }
  p.early = stream.early_reads_safe();
  p.group = args.heads / args.kv_heads;
  p.blocks = static_cast<int>(ceil_div(args.sequences.rows * p.group, kQueries));
  switch (args.head_dim) {
    case 64:
      return launch_dim<64>(stream, p);
    case 128:
      return launch_dim<128>(stream, p);
    default:
      return launch_dim<256>(stream, p);
  }
}

}  // namespace frt::cuda
