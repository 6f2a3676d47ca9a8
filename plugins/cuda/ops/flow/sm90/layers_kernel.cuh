// SPDX-License-Identifier: Apache-2.0
// layers_kernel.cuh - the layers of an action expert in one launch (sm_90a).
//
// Ten to a hundred rows pass through weights of 35 MB a layer (1024 wide, 2048 and 4096 within):
// 7.4 us to read, 3.7 in FP8. As operators of their own each product starts its weights from zero
// and waits for the one before. Here clusters of eight blocks, one block for each SM that
// clusters reach, go through five phases a layer, with a barrier of the grid between them:
//
//   project    q, k, v   tiles of 16 pairs of outputs that are rotated together
//   attend               tiles of queries, a cluster divides the keys (layers_attention.cuh)
//   add        x += ...  tiles of 72 outputs, a cluster divides the inputs
//   activate   h         tiles of 36 outputs of gate and of up
//   add        x += ...
//
// One thread fetches weights through a ring of units of 18 KB, as far ahead as there is room,
// through phases and layers: what a block multiplies is known beforehand, so weights wait for no
// barrier. Another one fetches x behind the barriers: of what all blocks of a cluster multiply each
// fetches eight rows of a unit for all, or of many rows whole units.
//
// The stream x stays in f32 where it is added to (layers_stream.cuh): each block owns eighths
// of the rows of its cluster's tiles. Norms: the owner publishes x (1 + scale) in bf16 and sums of
// its squares; the next product multiplies that, and the vector of shifts as a further row, and
// scales its results by what the squares sum up to:  norm(x) W^T = r ((x (1 + scale)) W^T) + shift
// W^T. In FP8 x is published as it is, and each block makes the normed codes of eight rows for all
// blocks of its cluster.
//
// All sums in f32, in a fixed order; those of a block travel to the one that adds them in bf16.
// Nothing may be kept in local memory: the first cache has some 28 KB beside all that is shared, so
// a register that does not fit costs a trip to L2, hundreds of cycles, in phases of a few thousand.
// Operands of the tensor cores lie in registers that other values can hardly use, wherever in the
// kernel; so values stay in the registers where they were summed, and what follows from a thread's
// number is found anew in every phase.
#pragma once

#include "../../common/arch.cuh"
#include "../../common/launch.cuh"
#include "layers_stream.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA

namespace flow {

// gelu(z) * up, with a quick division: z sigmoid(2u) as in gelu(), 2u in powers of two.
__device__ __forceinline__ float gelu_times(float z, float up) {
  constexpr float kOne = -1.5957691216f * 1.4426950409f, kThree = kOne * 0.044715f;
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;"
      : "=f"(inverse)
      : "f"(1.0f + exp2_fast(z * fmaf(kThree, z * z, kOne))));
  return z * up * inverse;
}

// The first value in the lowest byte.
__device__ __forceinline__ uint32_t e4m3_codes(float a, float b, float c, float d) {
  uint32_t codes;
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}\n"
      : "=r"(codes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
}

template <int kRows, int kDim, bool kFp8>
struct Worker : Residual<kRows, kFp8> {
  using Base = Residual<kRows, kFp8>;
  using Shared = FlowShared<kRows>;
  using Attention = FlowAttentionPhase<kDim>;
  static_assert(Attention::kBytes <= Shared::kArea);
  using Base::area;
  using Base::args;
  using Base::kHalves;
  using Base::lane;
  using Base::row_of;
  using Base::shape;
  using Base::shared;
  using Base::sync;
  using Base::tid;
  using typename Base::Squares;

  uint32_t passed_parity = 0, attention_parity = 0;

  __device__ __forceinline__ Worker(const FlowArgs& args, Shared& shared, uint32_t ring,
                                    uint32_t area, const FlowSync& sync)
      : Base(args, shared, ring, area, sync) {
    if (tid == 0) {
      Attention::start(attention_of(args.layers[0]), place_of(), shared.attention);
    }
  }

  // ---- products with the normed rows ------------------------------------------------------------

  __device__ __forceinline__ void wait_passed() {
    barrier_wait(&shared.passed, passed_parity);
    passed_parity ^= 1;
  }

  // The normed rows in FP8: each block of the cluster makes some for all, of eight rows, and where
  // there are few rows of a part of their columns; a warp has one row. They go there through
  // memory: from block to block there is room for 16 bytes a cycle, and one copy of a block's part
  // serves all eight.
  __device__ __forceinline__ void convert(const FlowModulation& modulation, float to_code) {
    constexpr int kPieces = kFlowMostCodes / 128;  // of a lane: four columns of each 128
    const int units = args.tiles.width_units, eights = (args.rows + 7) / 8;
    const int parts = eights <= 2 ? 4 : eights <= 4 ? 2 : 1;
    const int row = shape.rank() / parts * 8 + tid / 32;
    const int first = shape.rank() % parts * units / parts,
              last = (shape.rank() % parts + 1) * units / parts;
    const float* vectors = this->is_clean(row) ? modulation.clean : modulation.rows;
    const auto has_piece = [&](int i) { return row < args.rows && first * 2 + i < last * 2; };
    const int column = first * 256 + lane * 4;
    float4 scale[kPieces], shift[kPieces], x[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      scale[i] = shift[i] = x[i] = make_float4(0, 0, 0, 0);
      if (!has_piece(i)) continue;
      scale[i] = load_four(vectors + column + i * 128);
      shift[i] = load_four(vectors + args.width + column + i * 128);
    }
    if (tid < units) barrier_expect(shared.x_full + tid, eights * Shared::kEight);
    wait_passed();
    const float* from = reinterpret_cast<const float*>(args.y) + row * args.width + column;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (has_piece(i)) x[i] = __ldcg(reinterpret_cast<const float4*>(from + i * 128));
    }
    const float factor = this->factor_of(this->squares_of(row, lane % 4), row, lane % 4);
    uint8_t* const to =
        args.codes + static_cast<int64_t>(shape.block() * 8 + tid / 32) * args.width + column;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const auto normed = [&](float value, float by, float plus) {
        return fmaf(value * factor, (1 + by) * to_code, plus * to_code);
      };
      const uint32_t codes = e4m3_codes(
          normed(x[i].x, scale[i].x, shift[i].x), normed(x[i].y, scale[i].y, shift[i].y),
          normed(x[i].z, scale[i].z, shift[i].z), normed(x[i].w, scale[i].w, shift[i].w));
      if (has_piece(i)) *reinterpret_cast<uint32_t*>(to + i * 128) = codes;
    }
    sync.show_to_copies();
    sync.block();
    if (tid == 0 && shape.rank() / parts < eights) {
#pragma unroll 1
      for (int unit = first; unit < last; ++unit) {
        copy_x_to_all(area + unit * Shared::kXUnit + shape.rank() / parts * Shared::kEight,
                      args.normed, shape.block() * 8, unit, shared.x_full + unit);
      }
    }
  }

  // 16 pairs of outputs of a head. A thread has four neighbouring ones of its rows.
  __device__ __forceinline__ void project(const FlowLayer& layer, int tile, bool resident,
                                          const Squares (&squares)[kHalves]) {
    const bool query = tile < args.tiles.query_tiles;
    if (!query) tile -= args.tiles.query_tiles;
    const int head = tile / args.tiles.head_tiles, half = args.head_dim / 2;
    const int column = tile % args.tiles.head_tiles * kFlowPairs + lane % 4 * 4;
    float4 cosines[kHalves], sines[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int position = row_of(h) < args.rows ? shared.positions[row_of(h)] : -1;
      cosines[h] = make_float4(1, 1, 1, 1);
      sines[h] = make_float4(0, 0, 0, 0);
      if (position < 0 || !(query || head < args.kv_heads)) continue;
      const float* angles = args.table + static_cast<int64_t>(position) * args.head_dim + column;
      cosines[h] = load_four(angles);
      sines[h] = load_four(angles + half);
    }
    float c[kFlowPairs];
    this->template multiply<2 * kFlowPairs>(c, args.tiles.width_units, Shared::kSlots, resident);
    this->finish(c, squares, [&](const float(&v)[kHalves][kFlowPairs / 2]) {
      [[maybe_unused]] const float factor = query ? layer.factors.query : layer.factors.key_value;
      const int heads = query ? args.heads : 2 * args.kv_heads;
      // Queries in the order of FlowAttention.
      const int place = query ? column / 32 * 32 + column % 8 / 2 * 8 + column / 8 % 4 * 2 : column;
      const int next = query ? 8 : 2;  // from a pair to its neighbour
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        if (row_of(h) >= args.rows) continue;
        const float cosine[4] = {cosines[h].x, cosines[h].y, cosines[h].z, cosines[h].w};
        const float sine[4] = {sines[h].x, sines[h].y, sines[h].z, sines[h].w};
        float low[4], high[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float a = v[h][2 * j], b = v[h][2 * j + 1];
          if constexpr (kFp8) {
            a *= factor;
            b *= factor;
          }
          low[j] = a * cosine[j] - b * sine[j];
          high[j] = b * cosine[j] + a * sine[j];
        }
        bf16* to = (query ? args.q : args.kv) +
                   static_cast<int64_t>(row_of(h) * heads + head) * args.head_dim + place;
        *reinterpret_cast<uint32_t*>(to) = pack_bf16(low[0], low[1]);
        *reinterpret_cast<uint32_t*>(to + next) = pack_bf16(low[2], low[3]);
        *reinterpret_cast<uint32_t*>(to + half) = pack_bf16(high[0], high[1]);
        *reinterpret_cast<uint32_t*>(to + half + next) = pack_bf16(high[2], high[3]);
      }
    });
  }

  // 36 outputs of gate and of up. A thread has outputs t, t + 4 and so on of its rows.
  __device__ __forceinline__ void activate(const FlowLayer& layer, int tile, bool resident,
                                           const Squares (&squares)[kHalves]) {
    constexpr int kEach = kFlowOutputs / 8;
    float c[kFlowOutputs / 2];
    this->template multiply<kFlowOutputs>(c, args.tiles.width_units, Shared::kSlots, resident);
    this->finish(c, squares, [&](const float(&v)[kHalves][2 * kEach]) {
      const int first = tile * (kFlowOutputs / 2), t = lane % 4;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        float values[kEach];
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          float gate = v[h][2 * j], up = v[h][2 * j + 1];
          if constexpr (kFp8) {
            gate *= layer.factors.gate;
            up *= layer.factors.up * layer.factors.to_down;
          }
          values[j] = gelu_times(gate, up);
        }
        const bool there = row_of(h) < args.rows;
        const int64_t row = static_cast<int64_t>(row_of(h)) * args.hidden;
        if constexpr (kFp8) {
          // Four lanes have four bytes each of four words.
          uint8_t* to = reinterpret_cast<uint8_t*>(args.h) + row;
          const int one = t % 2 == 0 ? 0x6240 : 0x3715, two = t / 2 == 0 ? 0x5410 : 0x3276;
#pragma unroll
          for (int j = 0; j + 4 <= kEach; j += 4) {
            uint32_t codes = e4m3_codes(values[j], values[j + 1], values[j + 2], values[j + 3]);
            codes = __byte_perm(codes, __shfl_xor_sync(~0u, codes, 1), one);
            codes = __byte_perm(codes, __shfl_xor_sync(~0u, codes, 2), two);
            const int column = first + j * 4 + t * 4;
            if (there && column < args.hidden) *reinterpret_cast<uint32_t*>(to + column) = codes;
          }
          const int column = first + (kEach - 1) * 4 + t;
          if (there && column < args.hidden) {
            to[column] = static_cast<uint8_t>(e4m3_codes(values[kEach - 1], 0, 0, 0));
          }
        } else {
          // Two lanes have two halves each of two words.
          bf16* to = args.h + row;
          const int order = t % 2 == 0 ? 0x5410 : 0x3276;
#pragma unroll
          for (int j = 0; j < kEach; j += 2) {
            uint32_t word = pack_bf16(values[j], j + 1 < kEach ? values[j + 1] : 0.0f);
            word = __byte_perm(word, __shfl_xor_sync(~0u, word, 1), order);
            const int column = first + (j + t % 2) * 4 + t / 2 * 2;
            if (there && j + t % 2 < kEach && column < args.hidden) {
              *reinterpret_cast<uint32_t*>(to + column) = word;
            }
          }
        }
      }
    });
  }

  // The products with the rows normed by `modulation`; to_code: as in FlowFactors.
  __device__ __forceinline__ void shared_by_all(const FlowLayer& layer, bool second) {
    const int tiles = second ? args.tiles.gate_tiles : args.tiles.input_tiles;
    if (shape.cluster() * kFlowCluster >= tiles) {
      sync.wait();
      return sync.arrive();
    }
    Squares squares[kHalves];
    if constexpr (kFp8) {
      convert(second ? layer.hidden : layer.attention,
              second ? layer.factors.to_hidden : layer.factors.to_qkv);
    } else {
      wait_passed();
#pragma unroll
      for (int h = 0; h < kHalves; ++h) squares[h] = this->squares_of(row_of(h), lane % 4);
    }
    bool first = true;
#pragma unroll 1
    for (int t = shape.block(); t - shape.rank() < tiles; t += shape.blocks()) {
      const bool resident = kFp8 && !first;
      if (t >= tiles) {
        if (!resident) this->take_x(args.tiles.width_units, Shared::kSlots);
      } else if (second) {
        activate(layer, t, resident, squares);
      } else {
        project(layer, t, resident, squares);
      }
      first = false;
      if (t - shape.rank() + shape.blocks() >= tiles) break;
      if constexpr (kFp8) {
        sync.block();
      } else {
        this->release_x();
      }
    }
    sync.arrive();
  }

  // ---- all of it --------------------------------------------------------------------------------

  __device__ __forceinline__ FlowPlace place_of() const {
    return {shape.cluster(), shape.clusters(), shape.rank(), tid};
  }
  __device__ __forceinline__ FlowAttention attention_of(const FlowLayer& layer) const {
    FlowAttention a{};
    a.scale = args.scale;
    a.count = args.count;
    a.rows = args.sequence_rows;
    a.heads = args.heads;
    a.kv_heads = args.kv_heads;
    a.context_rows = args.context_rows;
    a.sequences_per_context = args.sequences_per_context;
    a.context_length = args.context_length;
    a.q = args.q;
    a.k = args.kv;
    a.v = args.kv + args.kv_heads * args.head_dim;
    a.context_k = static_cast<const bf16*>(layer.context_k);
    a.context_v = static_cast<const bf16*>(layer.context_v);
    a.q_stride = a.y_stride = args.heads * args.head_dim;
    a.kv_stride = 2 * args.kv_heads * args.head_dim;
    a.context_stride = args.context_stride;
    a.y = args.attention;
    a.y_scale = kFp8 ? layer.factors.attention : 0;
    return a;
  }

  __device__ __forceinline__ void attend(const FlowLayer& layer) {
    const FlowPlace place = place_of();
    const FlowAttention a = attention_of(layer);
    Attention phase;
    phase.run(a, place, area, shared.attention, attention_parity, sync);
    sync.arrive();
  }

  __device__ __forceinline__ void run() {
    for (int n = tid; n < kRows; n += kFlowThreads) {
      int position = -1;
      if (n < args.rows) {
        const int sequence = n / args.sequence_rows;
        position = n % args.sequence_rows;
        if (args.context_rows > 0) {
          position += args.context_length[sequence / args.sequences_per_context];
        }
        if (position < 0 || position >= args.positions) position = -1;
      }
      shared.positions[n] = position;
    }
    sync.block();
    this->enter();
#pragma unroll 1
    for (int i = 0; i < 2 * args.layer_count; ++i) {
      const FlowLayer& layer = args.layers[i / 2];
      const bool second = i % 2 == 1, last = i + 1 == 2 * args.layer_count;
      this->begin();
      shared_by_all(layer, second);
      if (!second) {
        this->begin();
        attend(layer);
      }
      this->begin();
      this->add(second ? args.tiles.hidden_units : args.tiles.attended_units,
                second ? layer.hidden : layer.attention,
                second ? layer.factors.down : layer.factors.output,
                last     ? nullptr
                : second ? &args.layers[i / 2 + 1].attention
                         : &layer.hidden);
    }
    // Nobody waits any more: the last one leaves the word as it was.
    if (tid == 0) {
      const uint32_t all = (sync.arrived + 1) * sync.blocks;
      if (atomicAdd(args.word, 1u) + 1 == all) *args.word = 0;
    }
  }
};

}  // namespace flow

#endif  // FRT_ARCH_WGMMA

template <int kRows, int kDim, bool kFp8>
__global__ void __launch_bounds__(kFlowBlockThreads, 1)
    flow_layers_kernel(const __grid_constant__ FlowArgs args) {
#if FRT_ARCH_WGMMA
  extern __shared__ __align__(1024) uint8_t dynamic[];
  using Shared = FlowShared<kRows>;
  const uint32_t ring = shared_address(dynamic);
  const uint32_t area = ring + args.stages * kFlowUnitBytes;
  Shared& shared =
      *reinterpret_cast<Shared*>(dynamic + args.stages * kFlowUnitBytes + Shared::kArea);
  pdl_trigger();
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.stages; ++i) {
      barrier_init(shared.full + i, 1);
      barrier_init(shared.empty + i, kFlowThreads / 32);
    }
    for (uint64_t& barrier : shared.x_full) barrier_init(&barrier, 1);
    attention_init(shared.attention);
    barrier_init(&shared.x_empty, kFlowCluster);
    barrier_init(&shared.passed, 1);
    barrier_init(&shared.received, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_barrier();
  FlowSync sync;
  sync.word = args.word;
  sync.blocks = gridDim.x;
  const int tid = static_cast<int>(threadIdx.x);
  // The same in all lanes, which the compiler must see: what is computed from uniform values then
  // stays in the registers that the tensor cores take descriptors from.
  if (__shfl_sync(~0u, tid, 0) >= kFlowThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (tid == kFlowThreads) flow::fetch_weights<kRows, kFp8>(args, shared, ring);
    if (tid == kFlowThreads + 32) {
      pdl_wait();
      flow::fetch_x<kRows, kFp8>(args, shared, area, sync);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    pdl_wait();
    flow::Worker<kRows, kDim, kFp8>(args, shared, ring, area, sync).run();
  }
  cluster_barrier();  // nobody leaves while others write to its memory
#endif
}

// For files with the kernels of so many rows.
template <int kRows, bool kFp8>
FlowKernel flow_kernel_of() {
  constexpr int kDim = 256;
  using Shared = FlowShared<kRows>;
  FlowKernel kernel;
  kernel.rows = kRows;
  kernel.by_eights = Shared::kByEights;
  kernel.function = flow_layers_kernel<kRows, kDim, kFp8>;
  kernel.area = Shared::kArea;
  kernel.shared_bytes = Shared::bytes;
  return kernel;
}

}  // namespace frt::cuda
