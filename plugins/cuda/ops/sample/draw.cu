// SPDX-License-Identifier: Apache-2.0
// The last kernel of frt.sample/1: top-k, top-p, min-p and the draw for one sequence per block.
//
// All of them cut the order of tokens (falling logits, rising ids) at a place: where so many tokens
// are reached, or so much weight. A place is found in two steps: in the histogram, whose sums are
// known after one scan, then among the tokens of that bin, which are gathered from the row, sorted
// and scanned (a "stretch" of the order). If all tokens up to that bin are at most kStretch, they
// are gathered together, and every later place, which is never behind, is found among them: that is
// the usual case, one pass over the row. A bin of more tokens (thousands of equal logits) is
// divided by key, then by id, until at most kStretch are left.
//
// Floor: one SM reads 1 MB from the cache in about 10 us.
#include <frt/checks.hpp>

#include "../common/launch.cuh"
#include "sample.cuh"

namespace frt::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kStretch = 4096;  // tokens sorted at once
constexpr int kOwn = kStretch / kThreads;
constexpr int kOwnBins = kBins / kThreads;

// Tokens and weight up to a place in the order.
struct Tally {
  uint64_t mass;
  uint32_t tokens;
};

// What a search looks for: the first place at which the running tally has reached it.
struct Goal {
  enum Kind { kTokens, kAtLeast, kMore } kind;
  uint32_t tokens;
  double mass;

  __device__ bool reached(const Tally& tally) const {
    const auto mass_so_far = static_cast<double>(tally.mass);
    return kind == kTokens    ? tally.tokens >= tokens
           : kind == kAtLeast ? mass_so_far >= mass
                              : mass_so_far > mass;
  }
};

struct Shared {
  uint64_t masses[kBins];  // up to and with the bin
  uint32_t tokens[kBins];
  union {
    uint64_t keys[kStretch];
    Tallies parts;  // of a bin that is divided
  };
  uint64_t warp_masses[32];
  uint32_t warp_tokens[32];
  uint32_t gathered;
  int bin;
  Tally place;           // with the token found
  Tally before;          // the tokens ahead of the stretch
  uint64_t key;          // the token found
  uint64_t low, high;    // keys of a divided bin
  uint32_t count;        // tokens of it
  uint32_t first_light;  // place of the first token lighter than min_p
};

// Inclusive sums over the block. Starts and ends with all threads together.
__device__ Tally scan(Tally own, Shared& shared) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint64_t mass = __shfl_up_sync(~0u, own.mass, offset);
    const uint32_t tokens = __shfl_up_sync(~0u, own.tokens, offset);
    if (lane >= static_cast<unsigned>(offset)) {
      own.mass += mass;
      own.tokens += tokens;
    }
  }
  __syncthreads();
  if (lane == 31) {
    shared.warp_masses[warp] = own.mass;
    shared.warp_tokens[warp] = own.tokens;
  }
  __syncthreads();
  for (unsigned i = 0; i < warp; ++i) {
    own.mass += shared.warp_masses[i];
    own.tokens += shared.warp_tokens[i];
  }
  return own;
}

// One block's walk along the order of its sequence.
class Walk {
 public:
  __device__ Walk(Shared& shared, const SampleWork& work, const SampleRow& row, int b,
                  float temperature, uint32_t vocabulary)
      : shared_(shared),
        row_(row),
        logits_(reinterpret_cast<const float4*>(work.logits_of(b))),
        quads_(static_cast<uint32_t>(work.padded / 4)),
        temperature_(temperature),
        vocabulary_(vocabulary) {
    Tally own[kOwnBins], sum{};
    const int first = static_cast<int>(threadIdx.x) * kOwnBins;
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      own[i] = {work.masses_of(b)[first + i], work.tokens_of(b)[first + i]};
      add(sum, own[i]);
    }
    Tally running = minus(scan(sum, shared_), sum);
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      add(running, own[i]);
      shared_.masses[first + i] = running.mass;
      shared_.tokens[first + i] = running.tokens;
    }
    __syncthreads();
  }

  __device__ Tally all() const {
    return up_to(kBins - 1);
  }

  // The place where the goal is reached, which must be one; its token is key().
  __device__ Tally find(const Goal& goal) {
    const int bin = find_bin(goal);
    const Tally ahead = up_to(bin - 1);
    if (goal.kind == Goal::kTokens && up_to(bin).mass == ahead.mass) {
      return {ahead.mass, goal.tokens};  // nobody asks which of the weightless it is
    }
    if (bin < first_bin_ || bin > last_bin_) load(bin, goal);
    Tally running = own_before_;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const uint32_t place = threadIdx.x * kOwn + static_cast<unsigned>(i);
      const bool was = goal.reached(running);
      add(running, {own_units_[i], 1});
      if (place < stretch_ && !was && goal.reached(running)) {
        shared_.place = running;
        shared_.key = shared_.keys[place];
      }
    }
    __syncthreads();
    const Tally found = shared_.place;
    __syncthreads();
    return found;
  }
  __device__ uint64_t key() const {
    return shared_.key;
  }

  // The tokens that weigh at least `least`, of the first `limit`; at least one.
  __device__ Tally heavy(float least, const Tally& limit) {
    Tally found{};
    if (first_bin_ == 0 && stretch_ >= limit.tokens) {
      if (threadIdx.x == 0) shared_.first_light = stretch_;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const uint32_t place = threadIdx.x * kOwn + static_cast<unsigned>(i);
        if (place < stretch_ && weight(logit_of(shared_.keys[place])) < least) {
          atomicMin(&shared_.first_light, place);
        }
      }
      __syncthreads();
      const uint32_t tokens = max(shared_.first_light, 1u);
      __syncthreads();
      if (tokens >= limit.tokens) return limit;
      return find({Goal::kTokens, tokens, 0});
    }
    // Generous, too.
    const float reach = logf(least);
    const float low = row_.largest + temperature_ * (reach - 1e-4f * (1.0f + fabsf(reach)));
    for_each(fmaxf(row_.least, low), row_.largest, [&](uint64_t, float logit, bool there) {
      const float heft = there ? weight(logit) : 0.0f;
      if (there && heft >= least) add(found, {units_of(heft), 1});
    });
    scan(found, shared_);
    found = {};
    for (int i = 0; i < kThreads / 32; ++i) {
      add(found, {shared_.warp_masses[i], shared_.warp_tokens[i]});
    }
    __syncthreads();
    if (found.tokens == 0) found = {units_of(1.0f), 1};
    return found.tokens < limit.tokens ? found : limit;
  }

 private:
  static __device__ void add(Tally& sum, const Tally& more) {
    sum.mass += more.mass;
    sum.tokens += more.tokens;
  }
  static __device__ Tally minus(const Tally& a, const Tally& b) {
    return {a.mass - b.mass, a.tokens - b.tokens};
  }
  __device__ Tally up_to(int bin) const {
    if (bin < 0) return {0, 0};
    return {shared_.masses[bin], shared_.tokens[bin]};
  }
  __device__ float weight(float logit) const {
    return weight_of(logit, row_.largest, temperature_);
  }

  __device__ int find_bin(const Goal& goal) {
    if (threadIdx.x == 0) shared_.bin = kBins - 1;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwnBins; ++i) {
      const int bin = static_cast<int>(threadIdx.x) * kOwnBins + i;
      if (goal.reached(up_to(bin)) && (bin == 0 || !goal.reached(up_to(bin - 1)))) {
        shared_.bin = bin;
      }
    }
    __syncthreads();
    const int bin = shared_.bin;
    __syncthreads();
    return bin;
  }

  // function(key, logit, there) for the row's logits in [low, high], low > kNever, by whole warps:
  // `there` says whether this lane has one. Few logits are in reach of anything, so four
  // comparisons and a vote are what most of the row costs.
  template <class Function>
  __device__ void for_each(float low, float high, const Function& function) const {
    constexpr int kLoads = 4;
    for (uint32_t first = threadIdx.x - threadIdx.x % 32; first < quads_;
         first += kThreads * kLoads) {
      float4 loaded[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const uint32_t quad = first + threadIdx.x % 32 + static_cast<uint32_t>(i) * kThreads;
        loaded[i] = quad < quads_ ? logits_[quad] : make_float4(kNever, kNever, kNever, kNever);
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const float logits[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
        bool there[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) there[j] = logits[j] >= low && logits[j] <= high;
        if (!__any_sync(~0u, there[0] || there[1] || there[2] || there[3])) continue;
        const uint32_t id = (first + threadIdx.x % 32 + static_cast<uint32_t>(i) * kThreads) * 4;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          function(token_key(logits[j], id + static_cast<uint32_t>(j)), logits[j], there[j]);
        }
      }
    }
  }

  // Bounds of a bin's logits, generous by one bin, for for_each().
  __device__ float lowest(int bin) const {
    const float far = bin == kBins - 1 ? INFINITY : static_cast<float>(bin + 2) / row_.factor;
    return fmaxf(row_.least, row_.largest - far);
  }
  __device__ float highest(int bin) const {
    const float near = bin <= 1 ? 0.0f : static_cast<float>(bin - 1) / row_.factor;
    return near > 0.0f ? row_.largest - near : row_.largest;
  }

  // Makes the stretch one that has the place of the goal, which lies in `bin`.
  __device__ void load(int bin, const Goal& goal) {
    int first = 0, last = bin;
    uint64_t low = 0, high = kNoToken;
    Tally before{};
    if (up_to(bin).tokens > kStretch) {
      first = bin;
      before = up_to(bin - 1);
      if (up_to(bin).tokens - before.tokens > kStretch) {
        divide(bin, goal, before);
        low = shared_.low;
        high = shared_.high;
        before = shared_.before;
      }
    }
    if (threadIdx.x == 0) shared_.gathered = 0;
    __syncthreads();
    for_each(lowest(last), highest(first), [&](uint64_t key, float logit, bool there) {
      if (!there || key < low || key > high) return;
      const int at = bin_of(logit, row_);
      if (at < first || at > last) return;
      const uint32_t place = atomicAdd(&shared_.gathered, 1u);
      if (place < kStretch) shared_.keys[place] = key;
    });
    __syncthreads();
    stretch_ = min(shared_.gathered, static_cast<uint32_t>(kStretch));
    sort();
    Tally sum{};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const uint32_t place = threadIdx.x * kOwn + static_cast<unsigned>(i);
      own_units_[i] = place < stretch_ ? units_of(weight(logit_of(shared_.keys[place]))) : 0;
      add(sum, {own_units_[i], place < stretch_ ? 1u : 0u});
    }
    own_before_ = minus(scan(sum, shared_), sum);
    add(own_before_, before);
    // A part of a bin has no second use.
    const bool whole = low == 0 && high == kNoToken;
    first_bin_ = whole ? first : kBins;
    last_bin_ = whole ? last : -1;
  }

  // Narrows the keys of a bin with too many tokens to [shared.low, shared.high], which has the
  // place of the goal; shared.before are the tokens ahead of it. `before`: those ahead of the bin.
  __device__ void divide(int bin, const Goal& goal, Tally before) {
    uint64_t low = token_key(highest(bin), 0);
    uint64_t high = token_key(lowest(bin), vocabulary_ - 1);
    uint32_t count = kStretch + 1;
    while (count > kStretch) {
      const int shift = max(0, 53 - __clzll(static_cast<long long>(high - low)));
      __syncthreads();
      shared_.parts.clear();
      if (threadIdx.x == 0) {
        shared_.before = before;
        shared_.low = low;
        shared_.high = high;
        shared_.count = 0;
      }
      __syncthreads();
      for_each(lowest(bin), highest(bin), [&](uint64_t key, float logit, bool there) {
        const bool inside = there && key >= low && key <= high && bin_of(logit, row_) == bin;
        shared_.parts.add(inside ? static_cast<int>((key - low) >> shift) : -1,
                          inside ? units_of(weight(logit)) : 0);
      });
      __syncthreads();
      Tally own[kOwnBins], sum{};
#pragma unroll
      for (int i = 0; i < kOwnBins; ++i) {
        const int part = static_cast<int>(threadIdx.x) * kOwnBins + i;
        own[i] = {shared_.parts.mass(part), shared_.parts.tokens[part]};
        add(sum, own[i]);
      }
      Tally running = minus(scan(sum, shared_), sum);
      add(running, before);
#pragma unroll
      for (int i = 0; i < kOwnBins; ++i) {
        const Tally ahead = running;
        add(running, own[i]);
        if (!goal.reached(running) || goal.reached(ahead)) continue;
        const uint64_t part = threadIdx.x * kOwnBins + static_cast<unsigned>(i);
        shared_.before = ahead;
        shared_.low = low + (part << shift);
        shared_.high = min(high, shared_.low + ((uint64_t{1} << shift) - 1));
        shared_.count = own[i].tokens;
      }
      __syncthreads();
      before = shared_.before;
      low = shared_.low;
      high = shared_.high;
      count = shared_.count;
    }
    __syncthreads();
  }

  // The gathered keys, ascending: bitonic, over the next power of two.
  __device__ void sort() {
    uint32_t size = 2;
    while (size < stretch_) size *= 2;
    for (uint32_t i = stretch_ + threadIdx.x; i < size; i += kThreads) shared_.keys[i] = kNoToken;
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2) {
      for (uint32_t distance = run / 2; distance > 0; distance /= 2) {
        for (uint32_t pair = threadIdx.x; pair < size / 2; pair += kThreads) {
          const uint32_t low = 2 * pair - (pair & (distance - 1));
          const uint64_t a = shared_.keys[low], b = shared_.keys[low + distance];
          if ((a > b) == ((low & run) == 0)) {
            shared_.keys[low] = b;
            shared_.keys[low + distance] = a;
          }
        }
        __syncthreads();
      }
    }
  }

  Shared& shared_;
  const SampleRow row_;
  const float4* logits_;
  uint32_t quads_;
  float temperature_;
  uint32_t vocabulary_;
  // The stretch: whole bins first .. last, sorted in shared.keys; kOwn tokens per thread.
  int first_bin_ = kBins, last_bin_ = -1;
  uint32_t stretch_ = 0;
  Tally own_before_{};
  uint64_t own_units_[kOwn] = {};
};

// Philox 4x32, 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011): the first word of counter (position, 0, 0, 0), as a number in [0, 1).
__device__ double uniform(uint64_t seed, uint32_t position) {
  uint32_t counter[4] = {position, 0, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter[0] = static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<uint32_t>(b);
    counter[2] = static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<uint32_t>(a);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter[0] * 0x1p-32;
}

__global__ void __launch_bounds__(kThreads)
    draw_kernel(const frt_sample_args args, const SampleWork work) {
  extern __shared__ uint64_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  pdl_trigger();
  pdl_wait();
  const auto b = static_cast<int>(blockIdx.x);
  const DrawnRow drawn(args, b);
  if (!drawn.active(args) || !work.rows[b].draws) return;
  const SampleRow row = work.rows[b];
  const frt_sampling_params params = args.params[drawn.sequence];
  Walk walk(shared, work, row, b, params.temperature, static_cast<uint32_t>(args.vocabulary));

  Tally limit = walk.all();
  if (params.top_k > 0 && static_cast<uint32_t>(params.top_k) < limit.tokens) {
    limit = walk.find({Goal::kTokens, static_cast<uint32_t>(params.top_k), 0});
  }
  // What remains for min-p is what top-p leaves: both cut the same order.
  if (params.top_p < 1.0f) {
    const double enough = static_cast<double>(params.top_p) * static_cast<double>(limit.mass);
    limit = enough > 0 ? walk.find({Goal::kAtLeast, 0, enough}) : Tally{units_of(1.0f), 1};
  }
  if (params.min_p > 0.0f) limit = walk.heavy(params.min_p, limit);
  const int fed = args.fed ? drawn.row + 1 : active_length(args.sequences, drawn.sequence);
  const double u =
      uniform(params.seed, static_cast<uint32_t>(args.sequences.position[drawn.sequence]) +
                               static_cast<uint32_t>(fed));
  walk.find({Goal::kMore, 0, u * static_cast<double>(limit.mass)});
  if (threadIdx.x == 0) {
    const float logit = logit_of(walk.key());
    write_token(args, b, static_cast<int32_t>(id_of(walk.key())),
                below(logit, row.largest) - row.log_sum);
  }
}

}  // namespace

void launch_draw(Stream& stream, const frt_sample_args& args, const SampleWork& work) {
  const int rows = args.sequences.count * rows_drawn(args);
  launch(stream, {dim3(static_cast<unsigned>(rows)), kThreads, sizeof(Shared)}, draw_kernel, args,
         work);
}

}  // namespace frt::cuda
