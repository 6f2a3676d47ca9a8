// SPDX-License-Identifier: Apache-2.0
// frt.argmax/1, frt.count_tokens/1, frt.accept_tokens/1 and frt.chain_tokens/1.
//
// argmax: a row of 248,320 logits is 1 MB, which one SM would take 10 us to read, so blocks
// of 2,048 logits find their own winners and a second kernel picks among them. A winner is one
// 64-bit key of logit and id (keys.cuh), so ties go to the lowest id in any order of work.
//
// count_tokens: one block per sequence, so that a barrier is all that orders the beginning of a
// request before its first tokens.
#include <frt/ops/checks/sample.hpp>

#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../registry.hpp"
#include "keys.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 8;  // per thread
constexpr int kChunk = kThreads * kValues;

// keys: (rows, chunks)
__global__ void __launch_bounds__(kThreads)
    argmax_chunks(const frt_argmax_args args, int chunks, uint64_t* keys) {
  __shared__ uint64_t warps[32];
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x) / chunks;
  if (row >= active_rows(args.rows, args.row_count)) return;
  const float* logits = args.logits + row * args.stride;
  const uint32_t first = (blockIdx.x % chunks) * kChunk + threadIdx.x;
  const auto width = static_cast<uint32_t>(args.width);
  float values[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const uint32_t id = first + i * kThreads;
    values[i] = id < width ? logits[id] : __uint_as_float(0x7FC00000u);
  }
  uint64_t best = kNoToken;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    if (!isnan(values[i])) best = min(best, token_key(values[i] + 0.0f, first + i * kThreads));
  }
  best = block_min(best, warps);
  if (threadIdx.x == 0) keys[blockIdx.x] = best;
}

__global__ void __launch_bounds__(kThreads)
    argmax_join(const frt_argmax_args args, int chunks, const uint64_t* keys) {
  __shared__ uint64_t warps[32];
  pdl_trigger();
  pdl_wait();
  const int row = static_cast<int>(blockIdx.x);
  if (row >= active_rows(args.rows, args.row_count)) return;
  uint64_t best = kNoToken;
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kThreads) {
    best = min(best, keys[static_cast<int64_t>(row) * chunks + i]);
  }
  best = block_min(best, warps);
  if (threadIdx.x == 0) args.ids[row] = best == kNoToken ? 0 : static_cast<int32_t>(id_of(best));
}

void argmax(Stream& stream, const frt_argmax_args& args) {
  const Checks check(FRT_OP_ARGMAX);
  check_argmax(check, args);
  const auto chunks = static_cast<int>(ceil_div(args.width, kChunk));
  const int64_t blocks = static_cast<int64_t>(args.rows) * chunks;
  if (blocks > INT32_MAX) check.unsupported("rows", "times width is 2^42 or more");
  auto* keys =
      static_cast<uint64_t*>(stream.scratch(static_cast<std::size_t>(blocks) * sizeof(uint64_t)));
  launch(stream, {dim3(static_cast<unsigned>(blocks)), kThreads}, argmax_chunks, args, chunks,
         keys);
  launch(stream, {dim3(static_cast<unsigned>(args.rows)), kThreads}, argmax_join, args, chunks,
         keys);
}

constexpr int kCountThreads = 1024;
constexpr uint32_t kInPrompt = 0x80000000u;  // of a count; the other bits: times generated

// One more, but never beyond 31 bits.
__device__ __forceinline__ void count_generated(uint32_t* count) {
  uint32_t seen = *count;
  while ((seen & ~kInPrompt) != ~kInPrompt) {
    const uint32_t before = atomicCAS(count, seen, seen + 1);
    if (before == seen) return;
    seen = before;
  }
}

__global__ void __launch_bounds__(kCountThreads) count_kernel(const frt_count_tokens_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_sequences& s = args.sequences;
  const auto b = static_cast<int>(blockIdx.x);
  const int length = active_length(s, b);
  if (length == 0) return;
  auto* counts = reinterpret_cast<uint32_t*>(static_cast<std::byte*>(args.counts) +
                                             s.slot[b] * args.slot_stride);
  if (args.restart != nullptr && args.restart[b] != 0) {
#pragma unroll 8
    for (int id = static_cast<int>(threadIdx.x); id < args.vocabulary; id += kCountThreads) {
      if (counts[id] != 0) counts[id] = kInPrompt;
    }
    __syncthreads();
  }
  const int32_t* ids = args.ids + static_cast<int64_t>(b) * s.rows;
  for (int row = static_cast<int>(threadIdx.x); row < length; row += kCountThreads) {
    const int32_t id = ids[row];
    if (id < 0 || id >= args.vocabulary) continue;
    if (args.generated == 0) {
      atomicOr(counts + id, kInPrompt);
    } else {
      count_generated(counts + id);
    }
  }
}

void count_tokens(Stream& stream, const frt_count_tokens_args& args) {
  check_count_tokens(Checks(FRT_OP_COUNT_TOKENS), args);
  launch(stream, {dim3(static_cast<unsigned>(args.sequences.count)), kCountThreads}, count_kernel,
         args);
}

constexpr int kFewThreads = 128;

__global__ void __launch_bounds__(kFewThreads) accept_kernel(const frt_accept_tokens_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_sequences& s = args.sequences;
  const auto b = static_cast<int>(blockIdx.x * kFewThreads + threadIdx.x);
  if (b >= s.count) return;
  const int length = active_length(s, b);
  const int32_t* fed = args.fed + static_cast<int64_t>(b) * s.rows;
  const int32_t* drawn = args.drawn + static_cast<int64_t>(b) * s.rows;
  const int32_t* stops = args.stops + static_cast<int64_t>(b) * args.stop_count;
  int accepted = 0;
  for (; accepted + 1 < length; ++accepted) {
    bool right = fed[accepted + 1] == drawn[accepted];
    for (int i = 0; i < args.stop_count; ++i) right = right && stops[i] != drawn[accepted];
    if (!right) break;
  }
  args.accepted[b] = accepted;
  args.committed[b] = length > 0 ? accepted + 1 : 0;
  if (length == 0) return;
  *reinterpret_cast<int32_t*>(static_cast<std::byte*>(args.pending) +
                              s.slot[b] * args.pending_stride) = drawn[accepted];
}

void accept_tokens(Stream& stream, const frt_accept_tokens_args& args) {
  check_accept_tokens(Checks(FRT_OP_ACCEPT_TOKENS), args);
  const auto blocks = static_cast<unsigned>(ceil_div(args.sequences.count, kFewThreads));
  launch(stream, {dim3(blocks), kFewThreads}, accept_kernel, args);
}

__global__ void __launch_bounds__(kFewThreads) chain_kernel(const frt_chain_tokens_args args) {
  pdl_trigger();
  pdl_wait();
  const frt_sequences& s = args.sequences;
  const auto b = static_cast<int>(blockIdx.x * kFewThreads + threadIdx.x);
  if (b >= s.count || active_length(s, b) == 0) return;
  args.candidates[b * args.stride + args.column] = args.ids[b];
  args.position_out[b] = s.position[b] + 1;
}

void chain_tokens(Stream& stream, const frt_chain_tokens_args& args) {
  check_chain_tokens(Checks(FRT_OP_CHAIN_TOKENS), args);
  const auto blocks = static_cast<unsigned>(ceil_div(args.sequences.count, kFewThreads));
  launch(stream, {dim3(blocks), kFewThreads}, chain_kernel, args);
}

}  // namespace

void register_tokens(KernelList& list) {
  list.add<frt_argmax_args>(FRT_OP_ARGMAX, 0, {}, argmax);
  list.add<frt_count_tokens_args>(FRT_OP_COUNT_TOKENS, 0, {}, count_tokens);
  list.add<frt_accept_tokens_args>(FRT_OP_ACCEPT_TOKENS, 0, {}, accept_tokens);
  list.add<frt_chain_tokens_args>(FRT_OP_CHAIN_TOKENS, 0, {}, chain_tokens);
}

}  // namespace frt::cuda
