// SPDX-License-Identifier: Apache-2.0
// A mixture-of-experts block of two to eight rows in one launch (sm_90), for the shape of
// single.cuh: one block per SM, all of them there at once, so that they can wait for
// each other. An expert that several rows chose is read once.
//
//   enter   as for one row, for each. Every block lists the experts that any row chose
//   hidden  silu(gate x) * (up x): a unit is eight columns of one expert, by four warps. Static
//           scheduling: unit u goes to quad u modulo the number of quads of warps of all blocks
//   down    a block has sixteen columns of the result, of every expert in turn. A task is a piece
//           of an expert's width, by one warp; rows are summed when all tasks are done
//
// Every warp has a ring of its own: each lane reads back what it copied itself, so that warps wait
// for nobody's copies but their own. It runs from `hidden` on into `down`, whose first weights
// arrive while hidden values are exchanged. Eight lanes have 128 bytes of a row, which mma.sync
// takes for two rows (own_half); that leaves it four rows of x, so an expert of more rows is
// multiplied twice.
//
// Floor: Qwen3.6-35B-A3B, 4 rows, 30.5 different experts if all are as likely: 199 MB in bf16, 43
// us at 4.6 TB/s; 100 MB in FP8, 22 us.
#include "../common/arch.cuh"
#include "../common/async_copy.cuh"
#include "../common/launch.cuh"
#include "few_enter.cuh"

namespace frt::cuda {
namespace {

#if FRT_ARCH_CLUSTERS

// ---- the ring ----------------------------------------------------------------------------------

// The first unit of a quad of warps. Blocks come before quads: all blocks have some of the last
// units.
__device__ __forceinline__ int first_unit() {
  return static_cast<int>(threadIdx.x) / 32 / Few::kParts * Few::kBlocks +
         static_cast<int>(blockIdx.x);
}

// What a warp fetches: gate and up of its units, then its pieces of `down`.
template <MoeFormat kFormat>
struct FewFetch {
  using S = Shape<kFormat>;
  const FewArgs& args;
  const FewChoice& choice;
  int unit, units, step = 0;  // hidden
  int item, items;            // down; the last one is the shared expert
  int offset, down_offset;    // of this lane, bytes: in gate and up from the unit on, in down

  __device__ __forceinline__ FewFetch(const FewArgs& args, const FewChoice& choice)
      : args(args), choice(choice), unit(first_unit()), units(choice.count * Few::kExpertUnits) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    item = warp / S::kPieces;
    items = choice.count + 1;
    offset = (lane / 8 * S::kInputs + warp % S::kParts * (S::kInputs / S::kParts)) * S::kBytes +
             lane % 8 * 16;
    down_offset = ((static_cast<int>(blockIdx.x) * S::kColumns + lane / 8) * S::kWidth +
                   warp % S::kPieces * S::kPiece) *
                      S::kBytes +
                  lane % 8 * 16;
  }

  // Scale `index` of a matrix's; of two of bf16 in a word, whoever reads the word picks one.
  static __device__ __forceinline__ const uint8_t* scale_word(const SingleMatrix& matrix,
                                                              int expert, int index, bool is_bf16) {
    return matrix.scale + expert * matrix.scale_stride + (is_bf16 ? index / 2 : index) * 4;
  }

  __device__ __forceinline__ void next(uint8_t* slot) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t target = shared_address(slot) + lane * 16;
    if (unit < units) {
      const int column = unit % Few::kExpertUnits * 8;
      const int expert = choice.experts[unit / Few::kExpertUnits];
      const int64_t at = offset + (column * S::kInputs) * S::kBytes + step * 128;
      const uint8_t* gate_at = args.gate.data + expert * args.gate.stride + at;
      const uint8_t* up_at = args.up.data + expert * args.up.stride + at;
      constexpr int kFourRows = 4 * S::kInputs * S::kBytes;
      copy_async_fetch_256(target, gate_at);
      copy_async_fetch_256(target + 512, gate_at + kFourRows);
      copy_async_fetch_256(target + 1024, up_at);
      copy_async_fetch_256(target + 1536, up_at + kFourRows);
      if (S::kFp8 && lane < 2) {
        const int index = column / 128 * (S::kInputs / 128) + warp % S::kParts * S::kSteps + step;
        copy_async_cached<4>(
            shared_address(slot) + 2048 + lane * 4,
            scale_word(lane == 0 ? args.gate : args.up, expert, index, args.scale_bf16));
      }
      if (++step == S::kSteps) {
        step = 0;
        unit += Few::kUnitStep;
      }
    } else if (item < items) {
      const bool shared = item + 1 == items;
      const SingleMatrix& matrix = shared ? args.shared_down : args.down;
      const int expert = shared ? 0 : choice.experts[item];
      const uint8_t* at = matrix.data + expert * matrix.stride + down_offset;
      constexpr int kFourRows = 4 * S::kWidth * S::kBytes;
#pragma unroll
      for (int j = 0; j < 4; ++j) copy_async_fetch_256(target + j * 512, at + j * kFourRows);
      if (S::kFp8 && lane == 0) {
        const int index = static_cast<int>(blockIdx.x) / 8 * (S::kWidth / 128) + warp % S::kPieces;
        copy_async_cached<4>(
            shared_address(slot) + 2048,
            scale_word(matrix, expert, index, shared ? args.shared_scale_bf16 : args.scale_bf16));
      }
      item += S::kSharers;
    }
    copies_commit();
  }
};

__device__ __forceinline__ float picked_scale(const uint8_t* word, int index, bool is_bf16) {
  const uint32_t bits = *reinterpret_cast<const uint32_t*>(word);
  if (!is_bf16) return __uint_as_float(bits);
  return __uint_as_float(index % 2 != 0 ? bits & 0xFFFF0000u : bits << 16);
}

// ---- hidden ------------------------------------------------------------------------------------

__device__ __forceinline__ void meet_quad(int quad) {
  asm volatile("bar.sync %0, 128;" ::"r"(quad + 1) : "memory");
}

// kGroups: of kMembers rows that an expert may have.
template <MoeFormat kFormat, int kGroups>
__device__ __forceinline__ void run_hidden(const FewArgs& args, FewMemory<kFormat>& memory,
                                           FewFetch<kFormat>& fetch, int& slot, uint32_t number) {
  using S = Shape<kFormat>;
  using M = FewMemory<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int quad = warp / S::kParts, part = warp % S::kParts;
  const FewChoice& choice = memory.choice;
  const int chunk = (lane % 4 + lane / 4 % 2 * 4) * (16 / S::kBytes);
  const int x_offset = (part * (S::kInputs / S::kParts) + chunk) / 8;
  int turn = 0;
#pragma unroll 1
  for (int unit = first_unit(); unit < fetch.units; unit += Few::kUnitStep, ++turn) {
    const int column = unit % Few::kExpertUnits * 8;
    const uint8_t* members = choice.members[unit / Few::kExpertUnits];
    const bool many = kGroups > 1 && members[Few::kMembers] != Few::kNobody;
    const uint4* x[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int a = members[g * Few::kMembers + lane / 8];
      const int row = a == Few::kNobody ? 0 : a / Few::kItemsOfRow;
      x[g] = reinterpret_cast<const uint4*>(memory.rows.x[row]) + x_offset;
    }
    float gate_sums[kGroups][2] = {}, up_sums[kGroups][2] = {}, c[kGroups][2][4] = {};
#pragma unroll 1
    for (int step = 0; step < S::kSteps; ++step) {
      uint8_t* data = memory.ring[warp][slot];
      copies_wait<M::kSlots - 1>();
      __syncwarp();  // scales are copied by other lanes
      uint4 rows[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) rows[j] = reinterpret_cast<const uint4*>(data)[j * 32 + lane];
      float gate_factor = 1.0f, up_factor = 1.0f;
      if constexpr (S::kFp8) {
        gate_factor = picked_scale(data + 2048, step, args.scale_bf16);
        up_factor = picked_scale(data + 2052, step, args.scale_bf16);
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (g > 0 && !many) break;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          multiply_sixteen<kFormat>(c[g][j], rows[j], rows[j + 2], x[g] + step * S::kPiece / 8);
        }
        if (S::kFp8 || step + 1 == S::kSteps) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            gate_sums[g][j] = fmaf(own_half(c[g][j][0], c[g][j][1]), gate_factor, gate_sums[g][j]);
            up_sums[g][j] = fmaf(own_half(c[g][j][2], c[g][j][3]), up_factor, up_sums[g][j]);
            c[g][j][0] = c[g][j][1] = c[g][j][2] = c[g][j][3] = 0.0f;
          }
        }
      }
      __syncwarp();
      fetch.next(data);
      slot = slot + 1 == M::kSlots ? 0 : slot + 1;
    }
    auto& parts = memory.rows.parts[turn % 2][quad];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (g > 0 && !many) break;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float gate_sum = add_halves(gate_sums[g][j]), up_sum = add_halves(up_sums[g][j]);
        float* sums = parts[part][g * Few::kMembers + lane % 4];
        if (lane / 4 % 2 == 0) {
          sums[j * 4 + lane / 8] = gate_sum;
          sums[8 + j * 4 + lane / 8] = up_sum;
        }
      }
    }
    meet_quad(quad);
    // A warp has a member of each group.
    const int member = part + (kGroups > 1 ? lane / 16 * Few::kMembers : 0);
    const int a = members[member];
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < S::kParts; ++p) sum += parts[p][member][lane % 16];
    if (S::kFp8 && a != Few::kNobody) sum *= memory.x_inverses[a / Few::kItemsOfRow];
    const float hidden = gated_bf16(sum, __shfl_down_sync(~0u, sum, 8));
    const float next = __shfl_down_sync(~0u, hidden, 1);
    const int at = lane % 16;
    if (a != Few::kNobody && at < 8 && at % 2 == 0 && (kGroups > 1 || lane < 16)) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(hidden, next);
      write_cell(args.cells + Few::kHiddenCells + a * Few::kItemCells + (column + at) / 2,
                 *reinterpret_cast<const uint32_t*>(&pair), number);
    }
  }
  // Every quad passes equally many barriers: tools that look for races count them.
  if (turn < (fetch.units + Few::kUnitStep - 1) / Few::kUnitStep) meet_quad(quad);
}

// ---- the exchange ------------------------------------------------------------------------------

// A piece of a row's items, those that one warp of single_kernel.cu has, by one warp. All warps
// pass the barrier in it before the first piece is written.
template <MoeFormat kFormat, int kRows>
__device__ __forceinline__ void take_hidden(const FewArgs& args, FewMemory<kFormat>& memory,
                                            int rows, uint32_t number) {
  using S = Shape<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int piece = warp % S::kPieces, own = warp / S::kPieces;
  constexpr int kPairs = S::kPiece / 4, kRounds = (S::kItems * kPairs + 31) / 32;
  constexpr int kBatch = kRows < 4 ? kRows : 4;
  const auto item_of = [&](int round) {
    const int i = round * (32 / kPairs) + lane / kPairs, item = i * S::kSharers + own;
    return i < S::kItems && item <= S::kTopK ? item : -1;
  };
#pragma unroll 1
  for (int first = 0; first < rows; first += kBatch) {
    uint64_t pairs[kBatch][kRounds][2];
    const auto cells_of = [&](int m, int round) {
      const int a = (first + m) * Few::kItemsOfRow + item_of(round);
      return args.cells + Few::kHiddenCells + a * Few::kItemCells + piece * (S::kPiece / 2) +
             lane % kPairs * 2;
    };
    const auto inside = [&](int m, int round) { return first + m < rows && item_of(round) >= 0; };
#pragma unroll
    for (int m = 0; m < kBatch; ++m) {
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        pairs[m][r][0] = pairs[m][r][1] = static_cast<uint64_t>(number) << 32;
        if (inside(m, r)) read_cells(cells_of(m, r), pairs[m][r]);
      }
    }
    if (first == 0) {
      if (threadIdx.x < rows) {
        const uint64_t* cell = args.cells + Few::kScaleCells + threadIdx.x;
        uint64_t scale;
        do {
          scale = read_cell(cell);
        } while (static_cast<uint32_t>(scale >> 32) != number);
        memory.choice.weights[threadIdx.x * Few::kItemsOfRow + Few::kTopK] =
            sigmoid(__uint_as_float(static_cast<uint32_t>(scale)));
      }
      __syncthreads();  // pieces take the place of x
    }
#pragma unroll
    for (int m = 0; m < kBatch; ++m) {
      if (first + m >= rows) break;
      unsigned most = 0u;
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        while (late(pairs[m][r], number)) read_cells(cells_of(m, r), pairs[m][r]);
        most = __vmaxu2(most, static_cast<uint32_t>(pairs[m][r][0]) & 0x7FFF7FFFu);
        most = __vmaxu2(most, static_cast<uint32_t>(pairs[m][r][1]) & 0x7FFF7FFFu);
      }
      float unit = 1.0f;
      if constexpr (S::kFp8) {
        const unsigned exponent = __reduce_max_sync(~0u, max(most & 0xFFFFu, most >> 16)) >> 7;
        unit = unit_of(exponent);
        if (lane == 0) memory.inverses[first + m][warp] = inverse_unit_of(exponent);
      }
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
        if (!inside(m, r)) continue;
        uint2 words = make_uint2(static_cast<uint32_t>(pairs[m][r][0]),
                                 static_cast<uint32_t>(pairs[m][r][1]));
        if constexpr (S::kFp8) {
          const float2 a = float2_of_bf16x2(words.x), b = float2_of_bf16x2(words.y);
          words = make_uint2(pack_f16(a.x * unit, a.y * unit), pack_f16(b.x * unit, b.y * unit));
        }
        const int a = (first + m) * Few::kItemsOfRow + item_of(r);
        reinterpret_cast<uint2*>(memory.pieces[a][piece])[lane % kPairs] = words;
      }
    }
  }
  __syncthreads();
}

// ---- down --------------------------------------------------------------------------------------

template <MoeFormat kFormat, int kGroups>
__device__ __forceinline__ void run_down(const FewArgs& args, FewMemory<kFormat>& memory,
                                         FewFetch<kFormat>& fetch, int& slot) {
  using S = Shape<kFormat>;
  using M = FewMemory<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, piece = warp % S::kPieces;
  const int chunk = (lane % 4 + lane / 4 % 2 * 4) * (16 / S::kBytes);
#pragma unroll 1
  for (int item = warp / S::kPieces; item < fetch.items; item += S::kSharers) {
    const uint8_t* members = memory.choice.members[item];
    uint8_t* data = memory.ring[warp][slot];
    copies_wait<M::kSlots - 1>();
    __syncwarp();
    uint4 rows[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) rows[j] = reinterpret_cast<const uint4*>(data)[j * 32 + lane];
    float scale = 1.0f;
    if constexpr (S::kFp8) {
      const bool shared = item + 1 == fetch.items;
      scale = picked_scale(data + 2048, piece, shared ? args.shared_scale_bf16 : args.scale_bf16);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (members[g * Few::kMembers] == Few::kNobody) break;
      const int reads = members[g * Few::kMembers + lane / 8];
      const int from = reads == Few::kNobody ? members[g * Few::kMembers] : reads;
      const uint4* values = reinterpret_cast<const uint4*>(memory.pieces[from][piece]) + chunk / 8;
      float products[2][4] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        multiply_sixteen<kFormat>(products[j], rows[2 * j], rows[2 * j + 1], values);
      }
      __syncwarp();  // results take the place of the values
      const int a = members[g * Few::kMembers + lane % 4];
      if (a != Few::kNobody) {
        auto* results = reinterpret_cast<float*>(memory.pieces[a][piece]);
        float* half = results + lane / 4 % 2 * S::kColumns + lane / 8;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          half[j * 8] = own_half(products[j][0], products[j][1]);
          half[j * 8 + 4] = own_half(products[j][2], products[j][3]);
        }
        if (S::kFp8 && lane < Few::kMembers) {
          const int row = a / Few::kItemsOfRow, own = a % Few::kItemsOfRow % S::kSharers;
          results[2 * S::kColumns] = scale * memory.inverses[row][own * S::kPieces + piece];
        }
      }
      __syncwarp();
    }
    __syncwarp();
    fetch.next(data);
    slot = slot + 1 == M::kSlots ? 0 : slot + 1;
  }
  __syncthreads();
}

// A warp has a column; a lane the even or odd half of what one warp of single_kernel.cu sums.
template <MoeFormat kFormat>
__device__ __forceinline__ void sum_rows(const FewArgs& args, const FewMemory<kFormat>& memory,
                                         int rows) {
  using S = Shape<kFormat>;
  const int column = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int piece = lane % S::kPieces, own = lane % S::kWarps / S::kPieces;
  const int at = lane / S::kWarps * S::kColumns + column;
#pragma unroll 2
  for (int row = 0; row < rows; ++row) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < S::kItems; ++i) {
      const int item = i * S::kSharers + own;
      if (item > S::kTopK) break;
      const int a = row * Few::kItemsOfRow + item;
      const auto* results = reinterpret_cast<const float*>(memory.pieces[a][piece]);
      float factor = memory.choice.weights[a];
      if (S::kFp8) factor *= results[2 * S::kColumns];
      sum = fmaf(results[at], factor, sum);
    }
#pragma unroll
    for (int step = S::kWarps; step > 0; step /= 2) {
      // The halves first, then as single_kernel.cu adds its warps.
      sum += __shfl_xor_sync(~0u, sum, step);
    }
    if (lane == 0) {
      args.y[row * S::kInputs + static_cast<int>(blockIdx.x) * S::kColumns + column] =
          from_float<bf16>(sum);
    }
  }
}

template <MoeFormat kFormat, int kRows>
__device__ __forceinline__ void run_experts(const FewArgs& args, FewMemory<kFormat>& memory,
                                            int rows, uint32_t number) {
  using M = FewMemory<kFormat>;
  constexpr int kGroups = (kRows + Few::kMembers - 1) / Few::kMembers;
  const int warp = threadIdx.x / 32;
  FewFetch<kFormat> fetch(args, memory.choice);
#pragma unroll 1
  for (int i = 0; i < M::kSlots; ++i) fetch.next(memory.ring[warp][i]);
  const int row = warp - (Few::kWarps - Few::kRows);  // by warps that did not pick experts
  if (row >= 0 && row < rows) tell_shared(args, memory, row, number);
  int slot = 0;
  run_hidden<kFormat, kGroups>(args, memory, fetch, slot, number);
  take_hidden<kFormat, kRows>(args, memory, rows, number);
  run_down<kFormat, kGroups>(args, memory, fetch, slot);
  sum_rows(args, memory, rows);
}

#endif

template <MoeFormat kFormat, int kRows>
__global__ void __launch_bounds__(Few::kThreads, 1)
    few_kernel(const __grid_constant__ FewArgs args) {
#if FRT_ARCH_CLUSTERS
  extern __shared__ uint4 dynamic[];
  auto& memory = *reinterpret_cast<FewMemory<kFormat>*>(dynamic);
  const int block = static_cast<int>(blockIdx.x), warp = threadIdx.x / 32;
  // The next kernel starts when all blocks of this one have come here: none can be kept out by it.
  pdl_trigger();
  if (block > Few::kBlocks) {
    pdl_wait();
    if (threadIdx.x == 0) ++args.numbers[block];
    return;
  }
  const Lines<kFormat> lines(args);
  if (threadIdx.x < Few::kExperts) memory.choice.rows_of[threadIdx.x] = 0u;
  pdl_wait();
  const uint32_t number = args.numbers[block] + 1;
  const int rows = active_rows(args.first + args.rows, args.row_count) - args.first;
  if (rows > 0) {
    uint2 packed[kRows];
    norm_rows(args, lines, memory, rows, packed);
    tell_logits(args, lines, memory, rows, packed, number);
    if (block < Few::kBlocks) sum_shared(lines, memory, packed);
    if (warp < rows) select_row(args, memory.choice, warp, number);
    __syncthreads();
    list_experts(memory.choice, rows);
    if (block < Few::kBlocks) {
      run_experts<kFormat, kRows>(args, memory, rows, number);
    } else {
      leave_rows(args, rows, packed, number);
      const int own = static_cast<int>(threadIdx.x), row = own / Few::kTopK;
      if (row < rows) {
        args.ids[own] = memory.choice.ids[row][own % Few::kTopK];
        args.weights[own] = memory.choice.weights[row * Few::kItemsOfRow + own % Few::kTopK];
      }
    }
  }
  copies_wait_all();
  if (threadIdx.x == 0) args.numbers[block] = number;
#endif
}

template <MoeFormat kFormat>
void launch_format(Stream& stream, int blocks, const FewArgs& args) {
  auto* kernel = args.rows <= 2   ? few_kernel<kFormat, 2>
                 : args.rows <= 4 ? few_kernel<kFormat, 4>
                                  : few_kernel<kFormat, 8>;
  launch(stream,
         {dim3(static_cast<unsigned>(blocks)), dim3(Few::kThreads), sizeof(FewMemory<kFormat>)},
         kernel, args);
}

}  // namespace

std::size_t few_shared_bytes(bool fp8) {
  return fp8 ? sizeof(FewMemory<MoeFormat::kFp8>) : sizeof(FewMemory<MoeFormat::kBf16>);
}

void launch_few(Stream& stream, bool fp8, int blocks, const FewArgs& args) {
  const CoResidentLaunch co_resident(&stream);
  fp8 ? launch_format<MoeFormat::kFp8>(stream, blocks, args)
      : launch_format<MoeFormat::kBf16>(stream, blocks, args);
}

}  // namespace frt::cuda
