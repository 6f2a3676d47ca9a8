// SPDX-License-Identifier: Apache-2.0
// frt.moe_route/1 and frt.moe_combine/1: what comes before the experts and after them.
//
// The softmax is over all experts and small (hundreds), so it is computed in plain loops. A NaN
// among a row's logits makes all its probabilities NaN: the first experts are chosen, with NaN
// weights, so that the defect shows in the output.
#include <algorithm>
#include <cmath>

#include "../device.hpp"
#include "active.hpp"
#include "elementwise.hpp"
#include "moe.hpp"
#include "numbers.hpp"

namespace frt::cpu {
namespace {

constexpr float kTaken = -1.0f;  // below every probability

// `p` (experts): working memory.
void route_row(const frt_moe_route_args& args, int64_t row, float* p) noexcept {
  const float* logits = args.logits + row * args.experts;
  int32_t* ids = args.ids + row * args.experts_per_token;
  float* weights = args.weights + row * args.experts_per_token;
  const float largest = *std::max_element(logits, logits + args.experts);
  float sum = 0.0f;
  for (int32_t e = 0; e < args.experts; ++e) {
    p[e] = std::exp(logits[e] - largest);
    sum += p[e];
  }
  for (int32_t e = 0; e < args.experts; ++e) p[e] /= sum;

  float chosen_sum = 0.0f;
  for (int32_t j = 0; j < args.experts_per_token; ++j) {
    int32_t best = -1;
    for (int32_t e = 0; e < args.experts; ++e) {
      if (p[e] == kTaken) continue;
      if (best < 0 || p[e] > p[best]) best = e;
    }
    ids[j] = best;
    weights[j] = p[best];
    chosen_sum += p[best];
    p[best] = kTaken;
  }
  if (!args.normalise) return;
  for (int32_t j = 0; j < args.experts_per_token; ++j) weights[j] /= chosen_sum;
}

}  // namespace

std::unique_ptr<Node> make_moe_route(Device& device, const frt_moe_route_args& args) {
  const std::size_t bytes = static_cast<std::size_t>(args.experts) * sizeof(float) *
                            static_cast<std::size_t>(device.options().threads);
  return make_node(
      [args](Pool& pool, std::byte* scratch) noexcept {
        auto* p = reinterpret_cast<float*>(scratch);
        pool.run(active_rows(args.rows, args.row_count), [&](int64_t row, int worker) {
          route_row(args, row, p + static_cast<int64_t>(worker) * args.experts);
        });
      },
      bytes);
}

std::unique_ptr<Node> make_moe_combine(Device& device, const frt_moe_combine_args& args) {
  const bool reference = device.reference_numerics();
  return make_node([args, reference](Pool& pool, std::byte*) noexcept {
    pool.run(active_rows(args.rows, args.row_count), [&](int64_t row, int) {
      const int64_t first = row * args.width;
      gated_add_row(reference, args.width, args.dtype, element(args.dtype, args.routed, first),
                    args.gate[row], element(args.dtype, args.shared, first),
                    element(args.dtype, args.y, first));
    });
  });
}

}  // namespace frt::cpu
