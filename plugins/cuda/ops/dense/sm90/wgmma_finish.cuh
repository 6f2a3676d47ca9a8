// SPDX-License-Identifier: Apache-2.0
// wgmma_finish.cuh - what follows a product of wgmma.cuh: sums of several blocks, bias,
// activation, gate, addend, residual.
//
// Sums lie in shared memory, (row of the tile, output of the tile) with four floats of padding.
// A block finishes its rows of them, adding those of its cluster in the order of ranks. Where two
// clusters share a tile, each leaves what it added for the other's half of the outputs in memory
// and finishes its own half: they wait for each other (CoResidentLaunch). Of two numbers the order
// does not matter.
#pragma once

#include <type_traits>

#include "../../common/arch.cuh"
#include "../../common/cluster.cuh"
#include "../../common/convert_values.cuh"
#include "../../common/mma.cuh"
#include "../../common/row_norm.cuh"
#include "wgmma_tiles.cuh"

namespace frt::cuda {

#if FRT_ARCH_WGMMA

namespace wgmma {

// z sigmoid(2 p(z)) = h + h tanh(p(z)), h = z / 2, p(z) = z (linear + cubic z^2): one instruction
// of the unit for special functions, which would take longest. The tangent's error of 2^-11 is that
// of a bf16 of z.
struct Activation {
  float linear, cubic;

  // Of z times `factor`.
  __device__ __forceinline__ explicit Activation(uint32_t kind, float factor = 1.0f) {
    linear = factor * (kind == FRT_ACTIVATION_GELU ? 0.7978845608f : 0.5f);
    cubic = factor * factor * factor * (kind == FRT_ACTIVATION_GELU ? 0.0356774081f : 0.0f);
  }
  __device__ __forceinline__ float operator()(float z) const {
    float tangent;
    asm("tanh.approx.f32 %0, %1;" : "=f"(tangent) : "f"(z * fmaf(cubic, z * z, linear)));
    const float half = 0.5f * z;
    return fmaf(half, tangent, half);
  }
};

// Four values as e4m3, the first lowest.
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return static_cast<uint32_t>(high) << 16 | low;
}

// Values of 16 outputs from `first_output` on and kRows rows from `first_row` on to y, as
// value(j, i) gives them in the lanes' order of sums, i < 4 for eight rows j. After a transposition
// eight outputs of a row lie in four lanes, two each of the lower eight and of the upper;
// neighbours exchange theirs, so that each has four in a row.
template <int kRows, bool kE4m3, class Value>
__device__ __forceinline__ void store_values_of(const SkinnyPart& part, int rows, int first_output,
                                                int first_row, const Value& value) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const bool odd = t % 2 != 0;
  const int output = first_output + (odd ? 8 : 0) + t / 2 * 4;
  const int left = output < part.outputs ? rows - first_row - g : 0;
  uint8_t* y =
      static_cast<uint8_t*>(part.y) + ((first_row + g) * part.y_stride + output) * (kE4m3 ? 1 : 2);
  const int64_t step = 8 * part.y_stride * (kE4m3 ? 1 : 2);
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j, y += step) {
    uint32_t low, high;
    if constexpr (kE4m3) {
      const uint32_t both =
          transpose_8x8(pack_e4m3(value(j, 0), value(j, 2), value(j, 1), value(j, 3)));
      low = __byte_perm(both, 0, 0x4420);
      high = __byte_perm(both, 0, 0x4431);
    } else {
      low = transpose_8x8(pack_bf16(value(j, 0), value(j, 1)));
      high = transpose_8x8(pack_bf16(value(j, 2), value(j, 3)));
    }
    const uint32_t others = __shfl_xor_sync(0xFFFFFFFFu, odd ? low : high, 1);
    const uint32_t first = odd ? others : low, second = odd ? high : others;
    if (8 * j >= left) continue;
    if constexpr (kE4m3) {
      *reinterpret_cast<uint32_t*>(y) = __byte_perm(first, second, 0x5410);
    } else {
      *reinterpret_cast<uint2*>(y) = make_uint2(first, second);
    }
  }
}

// Four outputs of row `row`, from `output` on, of which z are the sums, through everything that can
// follow a product.
template <bool kFp8>
__device__ __forceinline__ void finish_four(const WgmmaArgs& args, int index, int row, int output,
                                            float (&z)[4]) {
  const SkinnyPart& part = args.parts[index];
  for (int i = 0; i < 4; ++i) {
    if (kFp8) z[i] *= args.factors[index];
    if (part.bias) z[i] += part.bias[output + i];
    if (part.activation != FRT_ACTIVATION_NONE) z[i] = Activation(part.activation)(z[i]);
    if (part.gate.rows) {
      z[i] *= modulation_of(part.gate, row)[2 * static_cast<int64_t>(part.outputs) + output + i];
    }
    if (part.addend) {
      z[i] += part.addend[static_cast<int64_t>(row % part.addend_rows) * part.outputs + output + i];
    }
  }
  const int64_t at = row * part.y_stride + output;
  if (part.accumulate) {
    float before[4];
    load_values(part.y_dtype, part.y, at, before);
    for (int i = 0; i < 4; ++i) z[i] += before[i];
  }
  if (kFp8 && part.y_dtype == FRT_DTYPE_F8_E4M3) {
    for (int i = 0; i < 4; ++i) z[i] *= args.y_factors[index];
  }
  store_values(part.y_dtype, part.y, at, z);
}

// Whether only bias, activation and y in bf16 follow, or in e4m3 where nothing is added to it: what
// layers have, and the only short code.
template <bool kFp8>
__device__ __forceinline__ bool is_plain(const SkinnyPart& part) {
  const bool e4m3 = kFp8 && part.y_dtype == FRT_DTYPE_F8_E4M3 && !part.accumulate;
  return (e4m3 || part.y_dtype == FRT_DTYPE_BF16) && !part.gate.rows && !part.addend;
}

template <bool kCluster>
__device__ __forceinline__ void read_sums(float (&v)[4], uint32_t address) {
  if constexpr (kCluster) {
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(address));
  } else {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(address));
  }
}

// ---- two clusters with one tile ----------------------------------------------------------------

// A work_counter is 0 before and after a launch. Both blocks with the same rows of the tile add 1
// when their sums are in memory, and 1 when they have seen that.
//
// By the multiplying threads, when they have written what they leave.
__device__ __forceinline__ void exchange_sums(uint32_t* work_counter) {
  __threadfence();
  asm volatile("bar.sync 1, 256;" ::: "memory");
  if (threadIdx.x == 0) {
    atomicAdd(work_counter, 1u);
    uint32_t value = 0;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(value)
                   : "l"(work_counter)
                   : "memory");
    } while (value < kMostSharing);
    if (atomicAdd(work_counter, 1u) == 2 * kMostSharing - 1) *work_counter = 0;
  }
  asm volatile("bar.sync 1, 256;" ::: "memory");
}

// ---- rows of y ---------------------------------------------------------------------------------
//
// What follows a tile runs once, and its instructions come from far away: short loops beat long
// straight code, and a branch that skips code costs more than the code. Rows behind the last are
// read as the last, and not written.

// The rows of a tile that are a block's: warps of the cluster take them in turns, a warp some
// together. Where clusters share a tile of kSharedRows, as many as registers allow: each turn waits
// for memory.
template <int kSplits, int kSharedRows = 0>
struct Rows {
  static constexpr int kWarps = kSplits * 8;
  static constexpr int kShort = kSplits <= 2 ? 4 : 2;
  static constexpr int kOfWarp = (kSharedRows + kWarps - 1) / kWarps;
  static constexpr int kTogether = kSharedRows > 0 ? std::min(kOfWarp, 9) : kShort;
  static constexpr int kStep = kWarps * kTogether;

  __device__ __forceinline__ static int first(const Share& share) {
    return share.rank * 8 + static_cast<int>(threadIdx.x) / 32;
  }
};

// What y was, of the next rows of a warp and the columns 4 lane and on of 128: where sums are added
// to it, and registers are left, the first ones are asked for before the product begins.
template <int kBlocks, int kRows>
struct Before {
  static constexpr int kAhead = 8;
  static constexpr bool kEarly = kBlocks * kRows <= 272;
  uint2 rows[kAhead];

  __device__ __forceinline__ void load(const bf16* y, int64_t stride, int first, int step,
                                       int last) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) rows[i] = row(y, stride, min(first + i * step, last));
  }
  __device__ __forceinline__ void load_early(const WgmmaArgs& args, const Share& share,
                                             const Tile& tile) {
    const SkinnyPart& part = args.parts[tile.part];
    const int output = tile.output + 4 * (static_cast<int>(threadIdx.x) % 32);
    if (!kEarly || !part.accumulate || part.y_dtype != FRT_DTYPE_BF16 || args.sharing > 1) return;
    if (output >= part.outputs) return;
    // How many rows there are is on its way: not waited for.
    load(static_cast<const bf16*>(part.y) + tile.row * part.y_stride + output, part.y_stride,
         share.rank * 8 + static_cast<int>(threadIdx.x) / 32, args.splits * 8,
         args.product.rows - tile.row - 1);
  }
  // The next `kCount` become the first; rows[kAhead - kCount] is of `next`.
  template <int kCount>
  __device__ __forceinline__ void advance(const bf16* y, int64_t stride, int next, int step,
                                          int last) {
#pragma unroll
    for (int i = 0; i < kAhead - kCount; ++i) rows[i] = rows[i + kCount];
    if (next > last) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      rows[kAhead - kCount + i] = row(y, stride, min(next + i * step, last));
    }
  }
  __device__ __forceinline__ static uint2 row(const bf16* y, int64_t stride, int n) {
    uint2 values;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(values.x), "=r"(values.y)
                 : "l"(y + n * stride)
                 : "memory");
    return values;
  }
};

// The biases of a tile, in shared memory before the wait: constants that come from far away.
template <int kOutputs>
__device__ __forceinline__ void load_biases(const WgmmaArgs& args, const Tile& tile,
                                            float* biases) {
  const SkinnyPart& part = args.parts[tile.part];
  const int column = static_cast<int>(threadIdx.x), output = tile.output + column;
  if (column >= kOutputs) return;
  biases[column] = part.bias && output < part.outputs ? part.bias[output] : 0.0f;
}

// v[k] = the cluster's sums of row n + k warps, in the order of ranks; `from`: those of one's own
// column in each of its blocks.
template <int kBlocks, int kTogether, int kSplits>
__device__ __forceinline__ void gather_sums(float (&v)[kTogether][4],
                                            const uint32_t (&from)[kSplits], int n, int last) {
  constexpr int kRowBytes = (kBlocks * 128 + 4) * 4;
  float each[kSplits][kTogether][4];
#pragma unroll
  for (int s = 0; s < kSplits; ++s) {
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      read_sums<(kSplits > 1)>(each[s][k], from[s] + min(n + k * kSplits * 8, last) * kRowBytes);
    }
  }
#pragma unroll
  for (int k = 0; k < kTogether; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[k][i] = each[0][k][i];
#pragma unroll
      for (int s = 1; s < kSplits; ++s) v[k][i] += each[s][k][i];
    }
  }
}

template <int kSplits>
__device__ __forceinline__ void find_sums(uint32_t (&from)[kSplits], uint32_t address) {
#pragma unroll
  for (int s = 0; s < kSplits; ++s) from[s] = kSplits == 1 ? address : address_at(address, s);
}

// The block's rows of the cluster's sums, those of the other cluster's outputs, to `target`.
template <int kBlocks, int kRows, int kSplits>
__device__ __forceinline__ void leave_sums(const Share& share, int last, uint32_t sums,
                                           float* target) {
  using Own = Rows<kSplits, kRows>;
  const int column = (1 - share.half) * 128 + 4 * (static_cast<int>(threadIdx.x) % 32);
  uint32_t from[kSplits];
  find_sums(from, sums + column * 4);
#pragma unroll 1
  for (int n = Own::first(share); n <= last; n += Own::kStep) {
    float v[Own::kTogether][4];
    gather_sums<kBlocks>(v, from, n, last);
#pragma unroll
    for (int k = 0; k < Own::kTogether; ++k) {
      const int row = n + k * Own::kWarps;
      if (row > last) break;
      __stcg(reinterpret_cast<float4*>(target + row * (kBlocks * 128) + column),
             make_float4(v[k][0], v[k][1], v[k][2], v[k][3]));
    }
  }
}

// What add_sums() has to do beyond the sums of the cluster.
enum Extra : uint32_t {
  kActivate = 1,
  kE4m3 = 2,   // y is
  kOther = 4,  // another cluster has left sums
  kAdd = 8,    // to what y was
};

// The block's rows of the sums of kSplits blocks, with bias and activation, to y; `other`: what
// another cluster has left.
template <bool kFp8, int kBlocks, int kRows, int kSplits, uint32_t kExtra>
__device__ __forceinline__ void add_sums(const WgmmaArgs& args, const Share& share,
                                         const Tile& tile, int last, uint32_t sums,
                                         const float* biases, Before<kBlocks, kRows>& before,
                                         const float* other) {
  constexpr bool kOthers = (kExtra & kOther) != 0, kAdds = (kExtra & kAdd) != 0;
  using Own = Rows<kSplits, kOthers ? kRows : 0>;
  constexpr int kTogether = Own::kTogether;
  const SkinnyPart& part = args.parts[tile.part];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int stride = static_cast<int>(part.y_stride);
  const Activation activation(part.activation);
  const int first = kOthers ? share.half * 128 : 0;
  const int end = kOthers ? first + 128 : kBlocks * 128;
#pragma unroll 1
  for (int column = first + 4 * lane; column < end; column += 128) {
    const int output = tile.output + column;
    if (output >= part.outputs) return;
    const float4 four = *reinterpret_cast<const float4*>(biases + column);
    const float bias[4] = {four.x, four.y, four.z, four.w};
    const int64_t corner = tile.row * part.y_stride + output;
    bf16* y = static_cast<bf16*>(part.y) + corner;
    uint8_t* bytes = static_cast<uint8_t*>(part.y) + corner;
    uint32_t from[kSplits];
    find_sums(from, sums + column * 4);
    int n = Own::first(share);
    if constexpr (kAdds && !kOthers) {
      if (!before.kEarly || column >= 128) before.load(y, stride, n, Own::kWarps, last);
    }
#pragma unroll 1
    for (; n <= last; n += Own::kStep) {
      float v[kTogether][4];
      uint2 was[kTogether] = {};
      float4 more[kTogether] = {};
      if constexpr (kOthers) {
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
          const int row = min(n + k * Own::kWarps, last);
          if (part.accumulate) was[k] = before.row(y, stride, row);
          more[k] = __ldcg(reinterpret_cast<const float4*>(other + row * (kBlocks * 128) + column));
        }
      } else if constexpr (kAdds) {
#pragma unroll
        for (int k = 0; k < kTogether; ++k) was[k] = before.rows[k];
        before.template advance<kTogether>(y, stride, n + before.kAhead * Own::kWarps, Own::kWarps,
                                           last);
      }
      gather_sums<kBlocks>(v, from, n, last);
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if constexpr (kOthers) {
          v[k][0] += more[k].x;
          v[k][1] += more[k].y;
          v[k][2] += more[k].z;
          v[k][3] += more[k].w;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          v[k][i] = kFp8 ? fmaf(v[k][i], args.factors[tile.part], bias[i]) : v[k][i] + bias[i];
          if constexpr ((kExtra & kActivate) != 0) v[k][i] = activation(v[k][i]);
        }
        const int row = n + k * Own::kWarps, at = row * stride;
        if (row > last) break;
        if constexpr ((kExtra & kE4m3) != 0) {
          const float f = args.y_factors[tile.part];
          *reinterpret_cast<uint32_t*>(bytes + at) =
              pack_e4m3(v[k][0] * f, v[k][1] * f, v[k][2] * f, v[k][3] * f);
        } else {
          if constexpr (kOthers || kAdds) {
            v[k][0] += __uint_as_float(was[k].x << 16);
            v[k][1] += __uint_as_float(was[k].x & 0xFFFF0000u);
            v[k][2] += __uint_as_float(was[k].y << 16);
            v[k][3] += __uint_as_float(was[k].y & 0xFFFF0000u);
          }
          *reinterpret_cast<uint2*>(y + at) =
              make_uint2(pack_bf16(v[k][0], v[k][1]), pack_bf16(v[k][2], v[k][3]));
        }
      }
    }
  }
}

// The same for everything else that can follow, a row after the other; `other` may be NULL.
template <bool kFp8, int kBlocks, int kRows, int kSplits>
__device__ __forceinline__ void add_any(const WgmmaArgs& args, const Share& share, const Tile& tile,
                                        int last, uint32_t sums, const float* other) {
  // Where clusters may share tiles, the rows that leave_sums() leaves to a block.
  constexpr bool kShares = kSplits == kSharingSplits && kBlocks == kSharingBlocks;
  using Own = Rows<kSplits, kShares ? kRows : 0>;
  constexpr int kStride = kBlocks * 128 + 4;
  constexpr int kTurns = (kRows + Own::kStep - 1) / Own::kStep;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = other ? share.half * 128 : 0, end = other ? first + 128 : kBlocks * 128;
#pragma unroll 1
  for (int column = first + 4 * lane; column < end; column += 128) {
    if (tile.output + column >= args.parts[tile.part].outputs) break;
#pragma unroll 1
    for (int i = 0; i < kTurns * Own::kTogether; ++i) {
      const int n = Own::first(share) + i * Own::kWarps;
      if (n > last) continue;
      float z[4] = {};
#pragma unroll 1
      for (int s = 0; s < kSplits; ++s) {
        float v[4];
        read_sums<true>(v, address_at(sums + (n * kStride + column) * 4, s));
#pragma unroll
        for (int j = 0; j < 4; ++j) z[j] += v[j];
      }
      if (other) {
        const float* more = other + n * (kBlocks * 128) + column;
#pragma unroll
        for (int j = 0; j < 4; ++j) z[j] += __ldcg(more + j);
      }
      finish_four<kFp8>(args, tile.part, tile.row + n, tile.output + column, z);
    }
  }
}

// By the multiplying threads, when the block's sums are in shared memory.
template <bool kFp8, int kBlocks, int kRows, int kSplits>
__device__ __forceinline__ void finish_tile(const WgmmaArgs& args, const Share& share,
                                            const Tile& tile, int last, uint32_t sums,
                                            const float* biases, Before<kBlocks, kRows>& before) {
  if constexpr (kSplits > 1) {
    cluster_barrier();
  } else {
    asm volatile("bar.sync 1, 256;" ::: "memory");
  }
  const SkinnyPart& part = args.parts[tile.part];
  const float* other = nullptr;
  if constexpr (kSplits == kSharingSplits && kBlocks == kSharingBlocks) {
    if (args.sharing > 1) {
      float* between = args.sums + static_cast<int64_t>(tile.number) * (kRows * kBlocks * 128);
      leave_sums<kBlocks, kRows, kSplits>(share, last, sums, between);
      exchange_sums(args.work_counters + tile.number * kSplits + share.rank);
      other = between;
      const bool short_way = is_plain<kFp8>(part) && part.y_dtype == FRT_DTYPE_BF16 &&
                             part.activation == FRT_ACTIVATION_NONE;
      if (short_way) {
        return add_sums<kFp8, kBlocks, kRows, kSplits, kOther>(args, share, tile, last, sums,
                                                               biases, before, other);
      }
    }
  }
  const auto add = [&](auto extra) {
    add_sums<kFp8, kBlocks, kRows, kSplits, decltype(extra)::value>(args, share, tile, last, sums,
                                                                    biases, before, nullptr);
  };
  const bool activates = part.activation != FRT_ACTIVATION_NONE;
  if (other || !is_plain<kFp8>(part) || (activates && part.accumulate)) {
    add_any<kFp8, kBlocks, kRows, kSplits>(args, share, tile, last, sums, other);
  } else if (kFp8 && part.y_dtype == FRT_DTYPE_F8_E4M3) {
    if constexpr (kFp8) {
      if (activates) {
        add(std::integral_constant<uint32_t, kE4m3 | kActivate>());
      } else {
        add(std::integral_constant<uint32_t, kE4m3>());
      }
    }
  } else if (activates) {
    add(std::integral_constant<uint32_t, kActivate>());
  } else if (part.accumulate) {
    add(std::integral_constant<uint32_t, kAdd>());
  } else {
    add(std::integral_constant<uint32_t, 0>());
  }
}

}  // namespace wgmma

#endif  // FRT_ARCH_WGMMA

}  // namespace frt::cuda
