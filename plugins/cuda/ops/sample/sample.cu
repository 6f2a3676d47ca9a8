// SPDX-License-Identifier: Apache-2.0
// frt.sample/1: from logits to one token per sequence, or per row where drafts are checked, greedy
// or drawn; which of them, the kernels
// see in device memory, so one recorded step serves both.
//
// Three kernels:
//   survey   blocks of 2,048 logits: mask, bias and penalties, the winner, the sum of exponentials.
//   A row
//            of 248,320 takes 122 blocks, one wave.
//   spread   joins them. A greedy sequence is finished here. For a draw: a histogram of the tokens
//            over their distance from the largest logit, with counts and weights per bin.
//   draw     one block per sequence (draw.cu): walks the histogram to the bins where top-k,
//            top-p and the draw fall, and looks at the tokens of those bins alone.
//
// Floor: the row is read once or twice from the cache (1 MB, a few us); three launches. Greedy
// steps pay for the first two, and for a third that ends at once.
//
// NaN counts as -inf. If nothing is allowed, the token is 0. Weights are 44-bit integers
// (sample.cuh) where the CPU backend has doubles: a draw within 1e-6 of the border of two tokens
// may pick the other one.
#include "sample.cuh"

#include <frt/checks.hpp>

#include "../common/launch.cuh"
#include "../common/pieces.hpp"
#include "../registry.hpp"

namespace frt::cuda {
namespace {

constexpr int kSurveyThreads = 256;
constexpr int kSurveyValues = 8;  // per thread
constexpr int kSurveyChunk = kSurveyThreads * kSurveyValues;
constexpr int kSpreadThreads = 512;
constexpr int kSpreadChunk = 8192;

// One row's way from a logit to an allowed, penalised one.
struct Adjustment {
  const float* logits;
  const uint32_t* mask;    // NULL: all allowed
  const uint32_t* counts;  // NULL: no penalties
  const int32_t* fed;      // (fed_count) tokens that `counts` lacks
  int fed_count;
  const frt_logit_bias* bias;  // (bias_count)
  int bias_count;
  float repetition, frequency, presence;

  __device__ Adjustment(const frt_sample_args& args, const frt_sampling_params& params, int index) {
    const DrawnRow row(args, index);
    logits = args.logits + index * args.stride;
    mask = params.use_mask != 0 && args.mask ? args.mask + index * args.mask_stride : nullptr;
    fed = args.fed + (index - row.row);
    fed_count = args.fed ? row.row + 1 : 0;
    bias = args.bias + row.sequence * args.bias_stride;
    bias_count =
        args.bias ? static_cast<int>(min(static_cast<int64_t>(params.bias_count), args.bias_stride))
                  : 0;
    repetition = params.repetition_penalty;
    frequency = params.frequency_penalty;
    presence = params.presence_penalty;
    const bool penalised = repetition != 1.0f || frequency != 0.0f || presence != 0.0f;
    counts = penalised && args.counts ? reinterpret_cast<const uint32_t*>(
                                            static_cast<const std::byte*>(args.counts) +
                                            args.sequences.slot[row.sequence] * args.counts_stride)
                                      : nullptr;
  }

  // As if the tokens that were fed had been counted.
  __device__ uint32_t count_of(int id) const {
    uint32_t count = counts[id];
    for (int i = 0; i < fed_count; ++i) {
      if (fed[i] == id && (count & 0x7FFFFFFFu) != 0x7FFFFFFFu) ++count;
    }
    return count;
  }

  // Of the kSurveyChunk tokens from `first` on, into `sums`. By the whole block, where there is
  // one.
  __device__ void gather_bias(int first, float* sums) const {
    for (int i = static_cast<int>(threadIdx.x); i < kSurveyChunk; i += kSurveyThreads) sums[i] = 0;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < bias_count; i += kSurveyThreads) {
      const int64_t place = static_cast<int64_t>(bias[i].id) - first;
      if (place >= 0 && place < kSurveyChunk) sums[place] = bias[i].value;
    }
    __syncthreads();
  }

  __device__ float operator()(float logit, uint32_t count, uint32_t allowed) const {
    if (counts) {
      if (count != 0) logit = logit > 0.0f ? logit / repetition : logit * repetition;
      const auto times = static_cast<float>(count & 0x7FFFFFFFu);
      logit = __fsub_rn(logit, __fmul_rn(frequency, times));
      if (times > 0.0f) logit -= presence;
    }
    return isnan(logit) || allowed == 0 ? kNever : logit + 0.0f;  // no -0
  }
};

__global__ void __launch_bounds__(kSurveyThreads)
    survey_kernel(const frt_sample_args args, const SampleWork work) {
  __shared__ uint64_t warp_keys[32];
  __shared__ float warp_sums[32], warp_least[32];
  __shared__ float bias[kSurveyChunk];  // only where there is one
  pdl_trigger();
  pdl_wait();
  const int b = static_cast<int>(blockIdx.x) / work.chunks;
  const int chunk = static_cast<int>(blockIdx.x) % work.chunks;
  const DrawnRow row(args, b);
  if (!row.active(args)) return;
  const frt_sampling_params params = args.params[row.sequence];
  const Adjustment adjust(args, params, b);
  const int first = chunk * kSurveyChunk + static_cast<int>(threadIdx.x);
  float values[kSurveyValues];
  uint32_t counts[kSurveyValues], allowed[kSurveyValues];
#pragma unroll
  for (int i = 0; i < kSurveyValues; ++i) {
    const int id = first + i * kSurveyThreads;
    const bool inside = id < args.vocabulary;
    values[i] = inside ? adjust.logits[id] : kNever;
    counts[i] = inside && adjust.counts ? adjust.count_of(id) : 0;
    allowed[i] = inside && adjust.mask ? adjust.mask[id / 32] >> id % 32 & 1 : inside;
  }
  if (adjust.bias_count > 0) {
    adjust.gather_bias(chunk * kSurveyChunk, bias);
#pragma unroll
    for (int i = 0; i < kSurveyValues; ++i) {
      values[i] = __fadd_rn(values[i], bias[static_cast<int>(threadIdx.x) + i * kSurveyThreads]);
    }
  }
  uint64_t best = kNoToken;
  float least = INFINITY;
#pragma unroll
  for (int i = 0; i < kSurveyValues; ++i) {
    values[i] = adjust(values[i], counts[i], allowed[i]);
    const int id = first + i * kSurveyThreads;
    best = min(best, token_key(values[i], static_cast<uint32_t>(id)));
    if (values[i] > kNever) least = fminf(least, values[i]);
  }
  best = block_min(best, warp_keys);
  const float largest = logit_of(best);

  if (args.log_probabilities) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSurveyValues; ++i) {
      if (values[i] > kNever) sum += expf(below(values[i], largest));
    }
    sum = block_total(sum, warp_sums);
    if (threadIdx.x == 0) work.sums[blockIdx.x] = sum;
  }
  if (draws(params)) {
#pragma unroll
    for (int i = 0; i < kSurveyValues; ++i) {
      const int id = first + i * kSurveyThreads;
      if (id < work.padded) work.logits_of(b)[id] = values[i];
    }
    if (chunk == 0) {
      for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kSurveyThreads) {
        work.masses_of(b)[bin] = 0;
        work.tokens_of(b)[bin] = 0;
      }
    }
    least = -block_max(-least, warp_least);
  }
  if (threadIdx.x == 0) {
    work.keys[blockIdx.x] = best;
    work.least[blockIdx.x] = least;
  }
}

// What the survey's blocks found, together; the same in every block of a row.
__device__ SampleRow join_survey(const frt_sample_args& args, const SampleWork& work, int b,
                                 float temperature, uint64_t* best_key) {
  __shared__ uint64_t warp_keys[32];
  __shared__ float warp_sums[32], warp_least[32];
  const int64_t base = static_cast<int64_t>(b) * work.chunks;
  uint64_t best = kNoToken;
  float least = INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < work.chunks; i += kSpreadThreads) {
    best = min(best, work.keys[base + i]);
    least = fminf(least, work.least[base + i]);
  }
  best = block_min(best, warp_keys);
  SampleRow row{};
  row.largest = logit_of(best);
  if (args.log_probabilities) {
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < work.chunks; i += kSpreadThreads) {
      const float top = logit_of(work.keys[base + i]);
      if (top > kNever) sum += work.sums[base + i] * expf(below(top, row.largest));
    }
    row.log_sum = logf(block_total(sum, warp_sums));
  }
  row.draws = temperature > 0.0f && row.largest > kNever ? 1 : 0;
  if (row.draws) {
    row.least = -block_max(-least, warp_least);
    const float span = fminf(below(row.largest, row.least) / temperature, kReach);
    row.factor = span > 0.0f ? kBins / (span * temperature) : 0.0f;
  }
  *best_key = best;
  return row;
}

__global__ void __launch_bounds__(kSpreadThreads)
    spread_kernel(const frt_sample_args args, const SampleWork work, int chunks) {
  __shared__ Tallies tallies;
  pdl_trigger();
  pdl_wait();
  const int b = static_cast<int>(blockIdx.x) / chunks;
  const int chunk = static_cast<int>(blockIdx.x) % chunks;
  const DrawnRow drawn(args, b);
  if (!drawn.active(args)) return;
  const float temperature = args.params[drawn.sequence].temperature;
  if (chunk > 0 && !(temperature > 0.0f)) return;
  uint64_t best = 0;
  const SampleRow row = join_survey(args, work, b, temperature, &best);
  if (chunk == 0 && threadIdx.x == 0) {
    work.rows[b] = row;
    if (!row.draws) {
      const bool any = row.largest > kNever;
      write_token(args, b, any ? static_cast<int32_t>(id_of(best)) : 0,
                  any ? -row.log_sum : kNever);
    }
  }
  if (!row.draws) return;

  tallies.clear();
  __syncthreads();
  const float* logits = work.logits_of(b);
  constexpr int kValues = kSpreadChunk / kSpreadThreads;
  const int first = chunk * kSpreadChunk + static_cast<int>(threadIdx.x);
  float values[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int id = first + i * kSpreadThreads;
    values[i] = id < args.vocabulary ? logits[id] : kNever;
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const bool allowed = values[i] > kNever;
    tallies.add(allowed ? bin_of(values[i], row) : -1,
                allowed ? units_of(weight_of(values[i], row.largest, temperature)) : 0);
  }
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kSpreadThreads) {
    if (tallies.tokens[bin] == 0) continue;
    atomicAdd(work.tokens_of(b) + bin, tallies.tokens[bin]);
    atomicAdd(reinterpret_cast<unsigned long long*>(work.masses_of(b) + bin),
              static_cast<unsigned long long>(tallies.mass(bin)));
  }
}

std::size_t cut(std::byte* memory, int64_t count, SampleWork& work) {
  Cutter cutter(memory);
  work.keys = cutter.take<uint64_t>(count * work.chunks);
  work.sums = cutter.take<float>(count * work.chunks);
  work.least = cutter.take<float>(count * work.chunks);
  work.rows = cutter.take<SampleRow>(count);
  work.masses = cutter.take<uint64_t>(count * kBins);
  work.tokens = cutter.take<uint32_t>(count * kBins);
  work.logits = cutter.take<float>(count * work.padded);
  return cutter.bytes();
}

void sample(Stream& stream, const frt_sample_args& args) {
  const Checks check(FRT_OP_SAMPLE);
  check.positive("vocabulary", args.vocabulary);
  check.sequences(args.sequences);
  check.pointer("logits", args.logits);
  check.at_least("stride", args.stride, args.vocabulary);
  check.pointer("params", args.params);
  if (args.mask) {
    check.at_least("mask_stride", args.mask_stride,
                   (static_cast<int64_t>(args.vocabulary) + 31) / 32);
  }
  if (args.bias) check.at_least("bias_stride", args.bias_stride, 1);
  check.require(args.counts_stride % 4 == 0, "counts_stride", "is not a multiple of 4");
  check.require(args.pending_stride % 4 == 0, "pending_stride", "is not a multiple of 4");
  check.pointer("ids", args.ids);
  check.require(!args.fed || !args.pending, "pending",
                "is given with fed; accept_tokens writes it");
  const int64_t count = static_cast<int64_t>(args.sequences.count) * rows_drawn(args);
  SampleWork work{};
  work.chunks = static_cast<int>(ceil_div(args.vocabulary, kSurveyChunk));
  work.padded = ceil_div(args.vocabulary, 4) * 4;
  check.require(count * work.chunks <= INT32_MAX, "sequences.count",
                "times vocabulary is more than 2^42");
  cut(static_cast<std::byte*>(stream.scratch(cut(nullptr, count, work))), count, work);

  launch(stream, {dim3(static_cast<unsigned>(count * work.chunks)), kSurveyThreads}, survey_kernel,
         args, work);
  const auto chunks = static_cast<int>(ceil_div(args.vocabulary, kSpreadChunk));
  launch(stream, {dim3(static_cast<unsigned>(count * chunks)), kSpreadThreads}, spread_kernel, args,
         work, chunks);
  launch_draw(stream, args, work);
}

}  // namespace

void register_sample(KernelList& list) {
  list.add<frt_sample_args>(FRT_OP_SAMPLE, 0, {}, sample);
}

}  // namespace frt::cuda
