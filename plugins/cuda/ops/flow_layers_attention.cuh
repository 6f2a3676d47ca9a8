// SPDX-License-Identifier: Apache-2.0
// flow_layers_attention.cuh - the attention of the persistent kernel of an expert's layers
// (sm_90a): some dozens of rows of queries, their own keys and values, and a context of 600 to 1000
// more.
//
// A cluster takes tiles of kQueries queries of one key/value head, numbered row * group + head; its
// eight blocks divide the keys, the context's and the rows' own ones alike. Both products are
// turned round, so that what each block has alone is the first factor and lies in registers:
//   scores (keys x queries) = K Q^T        a warp has 16 keys of up to 128
//   sums (columns x queries) = V^T P^T     a warp has 16 columns of each 64 of its warpgroup's half
// Keys of the context go from memory into registers and values into shared memory before the
// barrier behind which queries exist; behind it there are the queries, copied by all threads into
// the order of the tensor cores, and a few rows of keys and values.
//
// Registers of K are loaded 16 bytes at a time, so a lane has eight neighbouring columns where the
// product wants four pairs: within 32 columns the inner dimension has another order, and queries
// are stored in it.
//
// Nobody reads another block's memory: maxima and totals, then sums are stored asynchronously into
// the memory of the block that merges them (an eighth of the queries each), and complete a barrier
// there. They lie where values were; each block tells all of its cluster when it has no more need
// of those. Merged in the order of ranks.
//
// Floor: 50 rows, 8 heads, 642 keys: 0.26 GFLOP, 0.3 us on 104 processors; latency.
#pragma once

#include <cfloat>

#include "attention_wgmma.cuh"
#include "convert_values.cuh"
#include "flow_layers_sync.cuh"

namespace frt::cuda {

// Of one layer. Sequence b has `rows` rows; it sees them all, and the first context_length[c] rows
// of context c = b / sequences_per_context. Query head h has key/value head h / (heads / kv_heads).
// All rows lie as frt_dense_attention_args says, aligned to 16 bytes; scale > 0.
struct FlowAttention {
  float scale;
  float y_scale;  // above 0: y is e4m3
  int count, rows, heads, kv_heads;
  int context_rows, sequences_per_context;
  const int32_t* context_length;
  const bf16 *q, *k, *v, *context_k, *context_v;
  int64_t q_stride, kv_stride, context_stride, y_stride;  // elements
  void* y;
};

inline constexpr int kFlowAttentionBarriers = 4;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// c (64 x 32) += a (64 x 16, in registers) b^T, or = where not `add`; rows of b hold the
// inner dimension.
__device__ __forceinline__ void multiply_registers(float (&c)[4][4], const uint32_t (&a)[4],
                                                   uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n"
      "}"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
// Past the first cache: other processors wrote it in this launch.
__device__ __forceinline__ uint4 load_fresh(const void* pointer) {
  uint4 value;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(pointer)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_word(uint32_t to, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ __forceinline__ void store_words(uint32_t to, const uint4& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ float load_float(uint32_t from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ float4 load_floats(uint32_t from) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
// Four 8x8 matrices turned round: lane l names row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, uint32_t a, uint32_t b,
                                                          uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Of block `rank`, where `address` is here.
__device__ __forceinline__ uint32_t address_of(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// To another block's memory, and counted by a barrier there.
__device__ __forceinline__ void send(uint32_t to, float a, float b, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(a), "f"(b), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send(uint32_t to, float a, float b, float c, float d,
                                     uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}
// For what other blocks sent.
__device__ __forceinline__ void wait_for_cluster(const uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct FlowMaximum {
  static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};
struct FlowSum {
  static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
// Over the eight lanes that differ in l / 4: lane l has the results of values
// l / 4 * (kCount / 8) and following.
template <class Operation, int kCount, int kOffset = 16, int kLeft = kCount / 2>
__device__ __forceinline__ void reduce_lanes(float (&values)[kCount]) {
  const bool upper = (threadIdx.x & kOffset) != 0;
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const float low = values[i], high = values[i + kLeft];
    values[i] =
        Operation::of(upper ? high : low, __shfl_xor_sync(~0u, upper ? low : high, kOffset));
  }
  if constexpr (kOffset > 4) {
    reduce_lanes<Operation, kCount, kOffset / 2, kLeft / 2>(values);
  }
}

// One thread, before the block knows of the barriers.
__device__ __forceinline__ void attention_init(uint64_t* barriers) {
  barrier_init(barriers, 1);                 // values
  barrier_init(barriers + 1, kFlowCluster);  // nobody needs the values
  barrier_init(barriers + 2, 1);             // maxima and totals
  barrier_init(barriers + 3, 1);             // sums
}

template <int kDim>
class FlowAttentionPhase {
 public:
  static constexpr int kQueries = 32;
  static constexpr int kKeys = 120;  // of a block at once
  // Shared memory: queries, then weights; values and a row of zeros; sums to merge; the rest.
  static constexpr uint32_t kStride = (kDim + 8) * 2;
  static constexpr uint32_t kValues = kQueries * kDim * 2;
  static constexpr uint32_t kSums = kValues + (kKeys + 1) * kStride;
  static constexpr uint32_t kTops = kSums + kFlowCluster * 8 * 512;
  static constexpr uint32_t kShares = kTops + 8 * kQueries * 4;
  static constexpr uint32_t kBytes = kShares + kQueries * 8;
  static_assert(kBytes <= 112 * 1024 && kSums % 16 == 0);

  // The rows of the context that the first tiles of this block's cluster have.
  static __device__ __forceinline__ int first_context(const FlowAttention& a,
                                                      const FlowPlace& place) {
    const Works works = works_of(a, place);
    return place.cluster < works.count ? context_of(a, place.cluster / works.of_sequence) : 0;
  }

  // Asks for what does not depend on the rows: all threads that compute, together. From then on the
  // area belongs to this phase.
  __device__ __forceinline__ void prefetch(const FlowAttention& a, const FlowPlace& place,
                                           int context, uint32_t area, uint64_t* barriers) {
    const Works works = works_of(a, place);
    if (place.cluster >= works.count) return;
    locate(a, place, works, place.cluster, context);
    begin(a, place, true, area, barriers);
  }

  // The attention itself, once queries, keys and values are there.
  template <class Sync>
  __device__ __forceinline__ void run(const FlowAttention& a, const FlowPlace& place, uint32_t area,
                                      uint64_t* barriers, uint32_t& parity, Sync& sync) {
    const Works works = works_of(a, place);
    int work = place.cluster;
    bool fresh = true, told = false;
    while (work < works.count) {
      scores_and_sums(a, place, fresh, told, area, barriers, parity, sync);
      told = true;
      first_ += kQueries;
      if (first_ >= last_ && (work += place.clusters) >= works.count) break;
      next(place, barriers, sync);
      fresh = first_ >= last_ || all_ > kKeys;
      if (first_ >= last_) {
        locate(a, place, works, work, context_of(a, work / works.of_sequence));
      }
      begin(a, place, fresh, area, barriers);
    }
  }

 private:
  static constexpr int kSteps = kDim / 16;   // of the scores' inner dimension
  static constexpr int kPairs = 4;           // pairs of queries of a lane
  static constexpr int kTiles = kDim / 128;  // 64 columns of values, of a warpgroup
  static constexpr int kUnits = kDim / 64;   // of 16 bytes, of a thread's queries
  static constexpr int kOwn = 4;             // queries that a block merges
  static constexpr int kFewKeys = 96;        // two images and a prompt
  static constexpr int kValueSteps = (kKeys + 15) / 16;

  // Tiles of one head that share their keys, one after the other, are a work.
  struct Works {
    int tiles, of_head, of_sequence, count;
  };

  uint32_t k_[kSteps][4];
  const bf16* q_;     // what this thread loads
  int first_, last_;  // queries
  int head_;          // key/value head
  int sequence_;
  int context_, all_;    // keys of this block: of the context, and all
  int context0_, own0_;  // the first of both kinds

  static __device__ __forceinline__ Works works_of(const FlowAttention& a, const FlowPlace& place) {
    Works works;
    const int tiles = (a.rows * (a.heads / a.kv_heads) + kQueries - 1) / kQueries;
    const int all = tiles * a.kv_heads * a.count;
    works.tiles = (all + place.clusters - 1) / place.clusters;
    works.of_head = (tiles + works.tiles - 1) / works.tiles;
    works.of_sequence = works.of_head * a.kv_heads;
    works.count = works.of_sequence * a.count;
    return works;
  }
  static __device__ __forceinline__ int context_of(const FlowAttention& a, int sequence) {
    if (a.context_rows == 0) return 0;
    const int length = __ldg(a.context_length + sequence / a.sequences_per_context);
    return max(0, min(length, a.context_rows));
  }

  // Another tile: nobody of the block needs the one before, and the cluster is told.
  template <class Sync>
  static __device__ __forceinline__ void next(const FlowPlace& place, uint64_t* barriers,
                                              Sync& sync) {
    publish_to_products();
    sync.block();
    if (place.tid < kFlowCluster) {
      asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                       address_of(shared_address(barriers + 1), place.tid))
                   : "memory");
    }
  }

  // Of the at-th of this block's keys.
  __device__ __forceinline__ int64_t context_at(const FlowAttention& a, int at) const {
    const int c = a.context_rows > 0 ? sequence_ / a.sequences_per_context : 0;
    return (static_cast<int64_t>(c) * a.context_rows + context0_ + at) * a.context_stride +
           head_ * kDim;
  }
  __device__ __forceinline__ int64_t own_at(const FlowAttention& a, int at) const {
    return (static_cast<int64_t>(sequence_) * a.rows + own0_ + at - context_) * a.kv_stride +
           head_ * kDim;
  }

  __device__ __forceinline__ void set_keys(int i, int half, const uint4& words) {
    k_[2 * i][half] = words.x;
    k_[2 * i][2 + half] = words.y;
    k_[2 * i + 1][half] = words.z;
    k_[2 * i + 1][2 + half] = words.w;
  }

  // Keys of the context into registers, from the at-th of the block's on.
  __device__ __forceinline__ void load_context_keys(const FlowAttention& a, const FlowPlace& place,
                                                    int at) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const int there = max(0, min(context_ - at, kKeys));
    const int n = warp * 16 + lane / 4;
    const int64_t first = context_at(a, at);
    const bf16* from = a.context_k + first + n * a.context_stride + lane % 4 * 8;
    const bf16* second = from + 8 * a.context_stride;
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      set_keys(i, 0, n < there ? load_stream(from + i * 32) : make_uint4(0, 0, 0, 0));
      set_keys(i, 1, n + 8 < there ? load_stream(second + i * 32) : make_uint4(0, 0, 0, 0));
    }
  }
  // The same rows of the sequence itself.
  __device__ __forceinline__ void load_own_keys(const FlowAttention& a, const FlowPlace& place,
                                                int at) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const int keys = min(all_ - at, kKeys), own = max(0, context_ - at);  // [own, keys)
    if (warp * 16 >= keys || warp * 16 + 16 <= own) return;
    const int n = warp * 16 + lane / 4;
    const bf16* from = a.k + own_at(a, at + n) + lane % 4 * 8;
    const bf16* second = from + 8 * a.kv_stride;
#pragma unroll
    for (int i = 0; i < kSteps / 2; ++i) {
      if (n >= own && n < keys) set_keys(i, 0, load_fresh(from + i * 32));
      if (n + 8 >= own && n + 8 < keys) set_keys(i, 1, load_fresh(second + i * 32));
    }
  }

  // Values of the context into shared memory.
  __device__ __forceinline__ void load_context_values(const FlowAttention& a,
                                                      const FlowPlace& place, int at, uint32_t area,
                                                      uint64_t* barriers) {
    const int there = max(0, min(context_ - at, kKeys));
    if (place.tid == 0) barrier_expect(barriers, there * kDim * 2);
    // Copies are issued one by one within a warp.
    const int row = place.tid % 32 * 8 + place.tid / 32;
    if (row < there) {
      copy_bulk(area + kValues + row * kStride, a.context_v + context_at(a, at + row), kDim * 2,
                barriers);
    }
  }

  __device__ __forceinline__ void locate(const FlowAttention& a, const FlowPlace& place,
                                         const Works& works, int work, int context) {
    sequence_ = work / works.of_sequence;
    head_ = work / works.of_head % a.kv_heads;
    first_ = work % works.of_head * works.tiles * kQueries;
    last_ = min(first_ + works.tiles * kQueries, a.rows * (a.heads / a.kv_heads));
    context0_ = context * place.rank / kFlowCluster;
    own0_ = a.rows * place.rank / kFlowCluster;
    context_ = context * (place.rank + 1) / kFlowCluster - context0_;
    // The same in all lanes, which the compiler must see: products depend on it.
    all_ = __shfl_sync(~0u, context_ + a.rows * (place.rank + 1) / kFlowCluster - own0_, 0);
  }

  // A tile, `fresh` where its values are not there yet.
  __device__ __forceinline__ void begin(const FlowAttention& a, const FlowPlace& place, bool fresh,
                                        uint32_t area, uint64_t* barriers) {
    const int group = a.heads / a.kv_heads, query = min(first_ + place.tid / 8, last_ - 1);
    q_ = a.q + (sequence_ * a.rows + query / group) * a.q_stride +
         static_cast<int64_t>(head_ * group + query % group) * kDim + place.tid % 8 * 8;
    if (place.tid == 0) {
      barrier_expect(barriers + 2, kQueries * 8);
      barrier_expect(barriers + 3, kQueries * kDim * 4);
    }
    if (place.tid < kDim / 8) {
      store_words(area + kValues + kKeys * kStride + place.tid * 16, make_uint4(0, 0, 0, 0));
    }
    load_context_keys(a, place, 0);
    if (fresh) load_context_values(a, place, 0, area, barriers);
  }

  // The queries, and this block's keys and values of the sequence itself.
  __device__ __forceinline__ void load_rows(const FlowAttention& a, const FlowPlace& place, int at,
                                            uint32_t area) {
    uint4 q[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) q[i] = load_fresh(q_ + i * 64);
    const int keys = min(all_ - at, kKeys), own = max(0, context_ - at);  // [own, keys)
    constexpr int kPieces = kDim / 8;                                     // of a row
    const int pieces = (keys - own) * kPieces;
    const bf16* v = a.v + own_at(a, at + own);
    const auto value = [&](int i) {
      return load_fresh(v + i / kPieces * a.kv_stride + i % kPieces * 8);
    };
    const auto store = [&](int i, const uint4& words) {
      store_words(area + kValues + (own + i / kPieces) * kStride + i % kPieces * 16, words);
    };
    uint4 piece;
    if (place.tid < pieces) piece = value(place.tid);
    load_own_keys(a, place, at);
    // Word j of a unit of 16 bytes goes to unit j of four.
    const int n = place.tid / 8, unit = place.tid % 8;
    const uint32_t to = area + n * 128 + unit % 4 * 4;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const uint32_t words[4] = {q[i].x, q[i].y, q[i].z, q[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        store_word(to + i * (kQueries * 128) + ((unit / 4 * 4 + j) ^ n % 8) * 16, words[j]);
      }
    }
    if (place.tid < pieces) store(place.tid, piece);
    for (int i = place.tid + kFlowThreads; i < pieces; i += kFlowThreads) store(i, value(i));
  }

  // This warp's columns of all values.
  static __device__ __forceinline__ void load_values(uint32_t (&v)[kValueSteps][kTiles][4],
                                                     const FlowPlace& place, int keys,
                                                     uint32_t area) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const int column = (warp / 4 * kTiles * 4 + warp % 4) * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < kValueSteps; ++i) {
      const int key = i * 16 + lane / 16 * 8 + lane % 8;
      const uint32_t from = area + kValues + (key < keys ? key : kKeys) * kStride + column * 2;
#pragma unroll
      for (int d = 0; d < kTiles; ++d) load_matrices_transposed(v[i][d], from + d * 128);
    }
  }

  template <int kCount>
  static __device__ __forceinline__ void multiply_values(
      float (&o)[kTiles][kPairs][4], const uint32_t (&v)[kValueSteps][kTiles][4], uint32_t area) {
    products_fence();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int d = 0; d < kTiles; ++d) {
        multiply_registers(o[d], v[i][d],
                           matrix_descriptor(area + i / 4 * (kQueries * 128) + i % 4 * 32, 16),
                           true);
      }
    }
    products_commit();
  }

  // Of query j of a lane's eight, from the lane that knows it.
  static __device__ __forceinline__ float known(float value, int j) {
    return __shfl_sync(~0u, value, 4 * j + static_cast<int>(threadIdx.x) % 4);
  }

  // One tile. `fresh`: its keys are not there yet; `told`: other blocks may still need the tile
  // before.
  template <class Sync>
  __device__ __forceinline__ void scores_and_sums(const FlowAttention& a, const FlowPlace& place,
                                                  bool fresh, bool told, uint32_t area,
                                                  uint64_t* barriers, uint32_t& parity,
                                                  Sync& sync) {
    const int lane = place.tid % 32, warp = __shfl_sync(~0u, place.tid / 32, 0), group = warp / 4;
    const float scale = a.scale * 1.4426950408889634f;  // scores in base 2
    float o[kTiles][kPairs][4] = {};
    // Of the query that this lane is asked for; the total of this warp's keys.
    float largest = -INFINITY, total = 0;

    int at = 0;
    do {
      if (at > 0) {
        publish_to_products();
        sync.block();  // nobody needs the weights before
        load_context_keys(a, place, at);
        load_context_values(a, place, at, area, barriers);
      }
      load_rows(a, place, at, area);
      const int keys = min(all_ - at, kKeys);
      publish_to_products();
      sync.block();

      float s[kPairs][4];
      if (group * 64 < keys) {
        products_fence();
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          multiply_registers(
              s, k_[i], matrix_descriptor(area + i / 4 * (kQueries * 128) + i % 4 * 32, 16), i > 0);
        }
        products_commit();
      }
      uint32_t v[kValueSteps][kTiles][4];
      if (fresh || at > 0) {
        barrier_wait(barriers, parity >> 1 & 1);
        parity ^= 2;
      }
      load_values(v, place, keys, area);
      products_wait<0>();
      pin(s);

      float top[2 * kPairs];
      const int key = warp * 16 + lane / 4;
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) {
        float &low = s[j / 2][j % 2], &high = s[j / 2][2 + j % 2];
        if (key >= keys) low = -INFINITY;
        if (key + 8 >= keys) high = -INFINITY;
        top[j] = fmaxf(low, high);
      }
      reduce_lanes<FlowMaximum>(top);
      store_word(area + kTops + place.tid * 4, __float_as_uint(top[0]));
      sync.block();
      float now = -INFINITY;
#pragma unroll
      for (int w = 0; w < 8; ++w) now = fmaxf(now, load_float(area + kTops + (w * 32 + lane) * 4));
      now = fmaxf(largest, keys > 0 ? now * scale : -INFINITY);
      const float shrink = at > 0 ? exp2_fast(largest - now) : 0.0f;
      largest = now;
      if (at > 0) {
#pragma unroll
        for (int j = 0; j < 2 * kPairs; ++j) {
          const float factor = known(shrink, j);
#pragma unroll
          for (int d = 0; d < kTiles; ++d) {
            o[d][j / 2][j % 2] *= factor;
            o[d][j / 2][2 + j % 2] *= factor;
          }
        }
      }
      float sums[2 * kPairs];
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) {
        const float base = fmaxf(known(largest, j), -FLT_MAX);  // there may be no keys
        float &low = s[j / 2][j % 2], &high = s[j / 2][2 + j % 2];
        low = exp2_fast(__fmaf_rn(low, scale, -base));
        high = exp2_fast(__fmaf_rn(high, scale, -base));
        sums[j] = low + high;
      }
      const uint32_t to = area + group * (kQueries * 128) + (lane / 16 * 8 + lane % 8) * 128 +
                          ((warp % 4 * 2 + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
      for (int i = 0; i < kPairs; i += 2) {
        store_matrices_transposed(to + i * 1024, pack_bf16(s[i][0], s[i][1]),
                                  pack_bf16(s[i][2], s[i][3]), pack_bf16(s[i + 1][0], s[i + 1][1]),
                                  pack_bf16(s[i + 1][2], s[i + 1][3]));
      }
      publish_to_products();
      sync.block();

      if (keys <= kFewKeys) {
        multiply_values<kFewKeys / 16>(o, v, area);
      } else {
        multiply_values<kValueSteps>(o, v, area);
      }
      reduce_lanes<FlowSum>(sums);
      total = total * shrink + sums[0];
      at += kKeys;
      if (at < all_) products_wait<0>();
#pragma unroll
      for (int d = 0; d < kTiles; ++d) pin(o[d]);
    } while (at < all_);

    if (told) {
      wait_for_cluster(barriers + 1, parity >> 2 & 1);
      parity ^= 4;
    }
    send_shares(place, area, barriers, sync, total, largest);
    products_wait<0>();
#pragma unroll
    for (int d = 0; d < kTiles; ++d) pin(o[d]);
    send_sums(place, area, barriers, o);
    merge(a, place, area, barriers, parity & 1);
    parity ^= 1;
  }

  // Maxima and totals, to who merges them: two numbers of each query.
  template <class Sync>
  static __device__ __forceinline__ void send_shares(const FlowPlace& place, uint32_t area,
                                                     uint64_t* barriers, Sync& sync, float total,
                                                     float largest) {
    const int lane = place.tid % 32;
    store_word(area + kTops + place.tid * 4, __float_as_uint(total));
    sync.block();
    if (place.tid >= 32) return;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) sum += load_float(area + kTops + (w * 32 + lane) * 4);
    const int query = lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2, rank = query / kOwn;
    send(address_of(area + kShares + (place.rank * kOwn + query % kOwn) * 8, rank), largest, sum,
         address_of(shared_address(barriers + 2), rank));
  }

  // Where the sums of lane 4 g + t are among those of a warp: of queries 2 (t % 2) and the next of
  // a block's own, columns g and g + 8 of tile d.
  static __device__ __forceinline__ uint32_t place_of(int lane, int d) {
    return ((d * 16 + lane / 4 * 2 + lane % 2) ^ d * 4) * 16;
  }

  static __device__ __forceinline__ void send_sums(const FlowPlace& place, uint32_t area,
                                                   uint64_t* barriers,
                                                   const float (&o)[kTiles][kPairs][4]) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    const uint32_t to = area + kSums + (place.rank * 8 + warp) * 512;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int rank = 2 * i + lane % 4 / 2;
      const uint32_t barrier = address_of(shared_address(barriers + 3), rank);
      const uint32_t there = address_of(to, rank);
#pragma unroll
      for (int d = 0; d < kTiles; ++d) {
        send(there + place_of(lane, d), o[d][i][0], o[d][i][1], o[d][i][2], o[d][i][3], barrier);
      }
    }
  }

  __device__ __forceinline__ void merge(const FlowAttention& a, const FlowPlace& place,
                                        uint32_t area, uint64_t* barriers, uint32_t parity) {
    const int lane = place.tid % 32, warp = place.tid / 32;
    // Of the two queries of this lane's sums.
    float factors[kFlowCluster][2];
    wait_for_cluster(barriers + 2, parity);
    {
      float4 shares[kFlowCluster];
      float most[2] = {-INFINITY, -INFINITY}, total[2] = {};
#pragma unroll
      for (int r = 0; r < kFlowCluster; ++r) {
        shares[r] = load_floats(area + kShares + (r * kOwn + lane % 2 * 2) * 8);
        most[0] = fmaxf(most[0], shares[r].x);
        most[1] = fmaxf(most[1], shares[r].z);
      }
#pragma unroll
      for (int r = 0; r < kFlowCluster; ++r) {
        factors[r][0] = exp2_fast(shares[r].x - most[0]);
        factors[r][1] = exp2_fast(shares[r].z - most[1]);
        total[0] += factors[r][0] * shares[r].y;
        total[1] += factors[r][1] * shares[r].w;
      }
      const float inverse = a.y_scale > 0 ? 1.0f / a.y_scale : 1.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float each = inverse / total[h];
#pragma unroll
        for (int r = 0; r < kFlowCluster; ++r) factors[r][h] *= each;
      }
    }
    // Where this lane's results go once matrices are turned round: query lane / 4 % 4 of the
    // block's own, two columns of tile lane / 16.
    const int heads = a.heads / a.kv_heads, query = first_ + place.rank * kOwn + lane / 4 % kOwn;
    const bool there = query < last_ && lane / 16 < kTiles;
    const int64_t to = (sequence_ * a.rows + query / heads) * a.y_stride +
                       static_cast<int64_t>(head_ * heads + query % heads) * kDim +
                       (warp / 4 * kTiles + lane / 16) * 64 + warp % 4 * 16 + lane % 4 * 2;
    // Lanes read tile t / 2, t = lane % 4, so that a matrix has both tiles.
    const uint32_t from =
        area + kSums + warp * 512 + place_of(lane, kTiles == 1 ? 0 : lane % 4 / 2);
    float low[2] = {}, high[2] = {};
    wait_for_cluster(barriers + 3, parity);
#pragma unroll
    for (int r = 0; r < kFlowCluster; ++r) {
      const float4 sums = load_floats(from + r * 8 * 512);
      low[0] += factors[r][0] * sums.x;
      low[1] += factors[r][1] * sums.y;
      high[0] += factors[r][0] * sums.z;
      high[1] += factors[r][1] * sums.w;
    }
    if (a.y_scale > 0) {
      const uint32_t codes =
          transpose_8x8(uint32_t{e4m3_bits(low[0])} | uint32_t{e4m3_bits(high[0])} << 8 |
                        uint32_t{e4m3_bits(low[1])} << 16 | uint32_t{e4m3_bits(high[1])} << 24);
      if (!there) return;
      auto* bytes = static_cast<uint8_t*>(a.y) + to;
      *reinterpret_cast<uint16_t*>(bytes) = static_cast<uint16_t>(__byte_perm(codes, 0, 0x20));
      *reinterpret_cast<uint16_t*>(bytes + 8) = static_cast<uint16_t>(__byte_perm(codes, 0, 0x31));
    } else {
      const uint32_t lower = transpose_8x8(pack_bf16(low[0], low[1]));
      const uint32_t upper = transpose_8x8(pack_bf16(high[0], high[1]));
      if (!there) return;
      auto* values = static_cast<bf16*>(a.y) + to;
      *reinterpret_cast<uint32_t*>(values) = lower;
      *reinterpret_cast<uint32_t*>(values + 8) = upper;
    }
  }
};

#endif

}  // namespace frt::cuda
