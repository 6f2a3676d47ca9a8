// SPDX-License-Identifier: Apache-2.0
// rows.cuh - what the variants of attention share on the device: the positions a row sees,
// where a slot's rows are, a vector's norm and rotation, a cache of three element types.
#pragma once

#include <frt/ops/attention.h>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"

namespace frt::cuda {

// Positions that row `q` of a sequence at `position` attends to.
__device__ __forceinline__ int seen_positions(int position, int q, int max_rows) {
  const int seen = position + q + 1;
  return seen < 1 ? 1 : seen < max_rows ? seen : max_rows;
}

// Where the rows of a slot are, by what with_row_stride() (attention.hpp) made of the arguments.
// All but the slot stays in the constant bank. Slot numbers (where there are pages) and the table
// are never written by a kernel, so both may be read before pdl_wait().
class SlotRows {
 public:
  __device__ __forceinline__ SlotRows(const frt_page_table& pages, int slot)
      : pages_(pages), first_(pages.table ? slot * pages.slot_pages : slot) {}

  // The page of row `position`, below 0: none. Without pages a slot is one.
  __device__ __forceinline__ int page(int position) const {
    if (!pages_.table) return first_;
    return __ldg(pages_.table + (first_ + (position >> __popc(mask()))));
  }
  __device__ __forceinline__ bool same_page(int a, int b) const { return ((a ^ b) & ~mask()) == 0; }
  // Whether a step of `step` rows to `position` has led into another page.
  __device__ __forceinline__ bool entered(int position, int step) const {
    return (position & mask()) < step;
  }
  // 0: there is none.
  __device__ __forceinline__ int next_page_begin(int position) const {
    return (position | mask()) + 1;
  }
  // Bytes from keys or values to where row 0 would be if all rows lay in the page of row
  // `position`: row p of that page is p * row_bytes behind it. No page is read as the first.
  __device__ __forceinline__ int64_t base(int page, int position, int64_t row_bytes) const {
    return max(page, 0) * pages_.stride - (position & ~mask()) * row_bytes;
  }

 private:
  __device__ __forceinline__ int mask() const { return pages_.rows - 1; }

  const frt_page_table& pages_;
  int first_;  // of the slot's entries, or the slot
};

// Walks a slot's rows tile by tile, kStep positions at a time. No page cuts a tile (they begin at
// multiples of FRT_PAGE_ROWS_LEAST), so the place changes from page to page only, and the next
// page is asked for a page ahead: the table is in no chain of waits.
template <int kStep>
class PageWalk {
 public:
  static_assert(FRT_PAGE_ROWS_LEAST % kStep == 0);

  // From the tile of `position`, which lies in `page`, to `stop`. `head_bytes`: from a row's start
  // to what is read of it.
  __device__ __forceinline__ void begin(const SlotRows& rows, int page, int position, int stop,
                                        int64_t row_bytes, int head_bytes) {
    place_ = rows.base(page, position, row_bytes) + head_bytes;
    ask(rows, position, stop);
  }
  // To the next tile.
  __device__ __forceinline__ void advance(const SlotRows& rows, int position, int stop,
                                          int64_t row_bytes, int head_bytes) {
    if (!rows.entered(position, kStep)) return;
    begin(rows, next_, position, stop, row_bytes, head_bytes);
  }
  // What row p of the tile is p * row_bytes behind; of keys or values.
  __device__ __forceinline__ const std::byte* rows_of(const void* tensor) const {
    return static_cast<const std::byte*>(tensor) + place_;
  }

 private:
  __device__ __forceinline__ void ask(const SlotRows& rows, int position, int stop) {
    const int at = rows.next_page_begin(position);
    next_ = at > 0 && at < stop ? rows.page(at) : 0;
  }

  int64_t place_;
  int next_;
};

// 2^x, results below the normal range are 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T, int N>
__device__ __forceinline__ Vector<T, N> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

template <int N, class Target>
__device__ __forceinline__ void store_floats(Target* to, const float* from, float scale) {
  Vector<Target, N> packed;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    packed.values[i] = from_float<Target>(sizeof(Target) == 1 ? from[i] / scale : from[i]);
  }
  *reinterpret_cast<Vector<Target, N>*>(to) = packed;
}

__device__ __forceinline__ int cache_element_bytes(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 4 : dtype == FRT_DTYPE_BF16 ? 2 : 1;
}

// Elements [at, at + N) of a row of the cache, whose element type is known at run time.
template <int N>
__device__ __forceinline__ void store_cache(frt_dtype dtype, void* row, int64_t at,
                                            const float* from, float scale) {
  if (dtype == FRT_DTYPE_BF16) {
    store_floats<N>(static_cast<bf16*>(row) + at, from, scale);
  } else if (dtype == FRT_DTYPE_F8_E4M3) {
    store_floats<N>(static_cast<f8e4m3*>(row) + at, from, scale);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) static_cast<float*>(row)[at + i] = from[i];
  }
}

// ---- vectors of at most 256 elements, eight a lane
// ------------------------------------------------

// For arguments that fast_append() (attention.hpp) takes: bf16, 16-byte alignment, rotary_dim % 16
// == 0.
constexpr int kMostTurns = 128;

// turns[j] = cos, sin of float(position) * inv_freq[j], times rope_scale, for every `step`-th j
// from `first` on. The full-range functions: angles reach the positions, hundreds of thousands.
// `known`: inv_freq[first], if the caller has it.
__device__ __forceinline__ void make_turns(const frt_attention_append_args& args, int position,
                                           int first, int step, float2* turns,
                                           const float* known = nullptr) {
  for (int j = first; j < args.rotary_dim / 2; j += step) {
    const float frequency = known && j == first ? *known : args.inv_freq[j];
    float sine, cosine;
    sincosf(static_cast<float>(position) * frequency, &sine, &cosine);
    turns[j] = make_float2(cosine * args.rope_scale, sine * args.rope_scale);
  }
}

// A lane's eight elements of a norm's weight (constants: before pdl_wait()), or no norm.
struct LaneNorm {
  bool present;
  float weight[8];
};
__device__ __forceinline__ LaneNorm load_norm(const frt_attention_append_args& args,
                                              const float* weight) {
  const int at = static_cast<int>(threadIdx.x) % 32 * 8;
  LaneNorm norm{weight != nullptr, {}};
  if (!norm.present || at >= args.head_dim) return norm;
  const auto low = load_vector<float, 4>(weight + at);
  const auto high = load_vector<float, 4>(weight + at + 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    norm.weight[i] = low.values[i];
    norm.weight[4 + i] = high.values[i];
  }
  return norm;
}

// One warp: x = rope(rms_norm(x) * weight), the norm only with a weight. Lane l holds elements 8 l
// .. 8 l + 7, zeros behind the last; partners of a rotation lie in the same place of another lane.
__device__ __forceinline__ void rotate_lanes(const frt_attention_append_args& args,
                                             const LaneNorm& norm, const float2* turns,
                                             float (&x)[8]) {
  const int at = static_cast<int>(threadIdx.x) % 32 * 8;
  if (norm.present) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += x[i] * x[i];
    const float factor =
        rsqrtf(warp_sum(squares) / static_cast<float>(args.head_dim) + args.epsilon);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] *= factor * norm.weight[i];
  }
  const int half = args.rotary_dim / 2;
  if (half == 0) return;
  const bool low = at < half, high = !low && at < 2 * half;
  const int other = static_cast<int>(threadIdx.x) % 32 + (low ? half / 8 : high ? -half / 8 : 0);
  const float2* turn = turns + (low ? at : high ? at - half : 0);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float partner = __shfl_sync(~0u, x[i], other);
    if (low || high) {
      const float sine = low ? -turn[i].y : turn[i].y;
      x[i] = x[i] * turn[i].x + partner * sine;
    }
  }
}

// This lane's eight elements of a vector, zeros behind its end.
__device__ __forceinline__ uint4 load_lane(const bf16* vector, int head_dim) {
  const int at = static_cast<int>(threadIdx.x) % 32 * 8;
  return at < head_dim ? __ldcg(reinterpret_cast<const uint4*>(vector + at))
                       : make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void dequantise_lane(const uint4& from, float (&x)[8]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
}

// One warp: `raw` is a key (rotated here) or a value of row `q`, head `head`; stored in the cache.
__device__ __forceinline__ void store_lane(const frt_attention_append_args& args, const uint4& raw,
                                           bool key, int slot, int position, int head,
                                           const float2* turns) {
  const SlotRows rows(args.pages, slot);
  const int page = rows.page(position);
  float x[8];
  dequantise_lane(raw, x);
  if (key) rotate_lanes(args, load_norm(args, args.k_norm), turns, x);
  const int at = static_cast<int>(threadIdx.x) % 32 * 8;
  if (at >= args.head_dim || page < 0) return;
  const int64_t row_bytes =
      static_cast<int64_t>(args.kv_heads) * args.head_dim * cache_element_bytes(args.kv_dtype);
  std::byte* row = static_cast<std::byte*>(key ? args.keys : args.values) +
                   rows.base(page, position, row_bytes) + position * row_bytes;
  store_cache<8>(args.kv_dtype, row, static_cast<int64_t>(head) * args.head_dim + at, x,
                 key ? args.k_scale : args.v_scale);
}

}  // namespace frt::cuda
