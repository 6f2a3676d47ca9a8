// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts operators beside their definitions in double, and the block beside its
// composition.
#include <doctest/doctest.h>
#include <frt/ops/linear.h>
#include <frt/ops/moe.h>
#include <frt/ops/norm.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "packed_weight.hpp"

using namespace frt::cpu_test;

namespace {

double silu_of(double x) {
  return x / (1.0 + std::exp(-x));
}

// One matrix of all experts, stacked in one block of memory as checkpoints have it.
class Experts {
 public:
  Experts(const Packing& packing, int32_t experts, int32_t rows, int32_t cols, uint64_t seed) {
    for (int32_t e = 0; e < experts; ++e) {
      matrices_.emplace_back(packing, rows, cols, seed + static_cast<uint64_t>(e));
      const auto& data = matrices_.back().data();
      const auto& scale = matrices_.back().scale();
      const auto& zero = matrices_.back().zero();
      data_.insert(data_.end(), data.begin(), data.end());
      scale_.insert(scale_.end(), scale.begin(), scale.end());
      zero_.insert(zero_.end(), zero.begin(), zero.end());
      global_.push_back(matrices_.back().weight().global_scale);
    }
  }

  frt_expert_weight weight() const {
    frt_expert_weight weight{};
    weight.expert = matrices_[0].weight();
    weight.expert.data = data_.data();
    weight.expert.scale = scale_.empty() ? nullptr : scale_.data();
    weight.expert.zero = zero_.empty() ? nullptr : zero_.data();
    weight.expert.global_scale = 1e9f;  // global_scales stand in its place
    weight.data_stride = static_cast<int64_t>(data_.size() / matrices_.size());
    weight.scale_stride = static_cast<int64_t>(scale_.size() / matrices_.size());
    weight.zero_stride = static_cast<int64_t>(zero_.size() / matrices_.size());
    weight.global_scales = global_.data();
    return weight;
  }
  const PackedWeight& operator[](int32_t e) const { return matrices_[static_cast<std::size_t>(e)]; }

 private:
  std::vector<PackedWeight> matrices_;
  std::vector<uint8_t> data_;
  std::vector<uint8_t> scale_;
  std::vector<uint8_t> zero_;
  std::vector<float> global_;
};

struct Moe {
  int32_t experts, experts_per_token, inputs, width;
  Experts gate, up, down;
  Moe(const Packing& packing, int32_t e, int32_t c, int32_t i, int32_t w)
      : experts(e),
        experts_per_token(c),
        inputs(i),
        width(w),
        gate(packing, e, w, i, 100),
        up(packing, e, w, i, 200),
        down(packing, e, i, w, 300) {}
};

frt_moe_experts_args experts_args(const Moe& moe, frt_dtype dtype, int32_t rows, const Tensor& x,
                                  const std::vector<int32_t>& ids,
                                  const std::vector<float>& weights, Tensor& y) {
  frt_moe_experts_args args{};
  args.dtype = dtype;
  args.rows = rows;
  args.experts = moe.experts;
  args.experts_per_token = moe.experts_per_token;
  args.x = x.data();
  args.ids = ids.data();
  args.weights = weights.data();
  args.gate = moe.gate.weight();
  args.up = moe.up.weight();
  args.down = moe.down.weight();
  args.y = y.data();
  return args;
}

// Row `r` of the mixture in double; `hidden_bf16`: the hidden values are rounded as the operator
// rounds them. Returns also the sum of magnitudes, for the tolerance.
struct Mixture {
  std::vector<double> y, magnitude;
};
Mixture mixture(const Moe& moe, const Tensor& x, std::size_t row, const int32_t* ids,
                const float* weights) {
  const auto inputs = static_cast<std::size_t>(moe.inputs);
  Mixture result{std::vector<double>(inputs), std::vector<double>(inputs)};
  for (int32_t j = 0; j < moe.experts_per_token; ++j) {
    if (ids[j] < 0 || ids[j] >= moe.experts) continue;
    std::vector<double> hidden(static_cast<std::size_t>(moe.width));
    for (int32_t h = 0; h < moe.width; ++h) {
      double g = 0.0;
      double u = 0.0;
      for (int32_t k = 0; k < moe.inputs; ++k) {
        const double value = x[row * inputs + static_cast<std::size_t>(k)];
        g += moe.gate[ids[j]].value(h, k) * value;
        u += moe.up[ids[j]].value(h, k) * value;
      }
      hidden[static_cast<std::size_t>(h)] = silu_of(g) * u;
    }
    for (std::size_t n = 0; n < inputs; ++n) {
      for (int32_t h = 0; h < moe.width; ++h) {
        const double product = static_cast<double>(weights[j]) *
                               moe.down[ids[j]].value(static_cast<int32_t>(n), h) *
                               hidden[static_cast<std::size_t>(h)];
        result.y[n] += product;
        result.magnitude[n] += std::fabs(product);
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("routing picks the largest probabilities in order, ties to the lowest expert") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const uint32_t normalise : {0u, 1u}) {
      const int32_t rows = 9, experts = 37, experts_per_token = 6;
      Tensor logits =
          random_tensor(FRT_DTYPE_F32, static_cast<std::size_t>(rows * experts), 1, 4.0f);
      // Row 3: all equal. Row 4: one far above. Row 5: two equal largest.
      for (std::size_t e = 0; e < 37; ++e) logits.set(3 * 37 + e, 1.5f);
      logits.set(4 * 37 + 20, 200.0f);
      logits.set(5 * 37 + 30, 9.0f);
      logits.set(5 * 37 + 11, 9.0f);
      std::vector<int32_t> ids(static_cast<std::size_t>(rows * experts_per_token), -7);
      std::vector<float> weights(ids.size(), -7.0f);
      int32_t row_count = 8;
      frt_moe_route_args args{};
      args.rows = rows;
      args.experts = experts;
      args.experts_per_token = experts_per_token;
      args.normalise = normalise;
      args.row_count = &row_count;
      args.logits = logits.f32.data();
      args.ids = ids.data();
      args.weights = weights.data();
      device.run(FRT_OP_MOE_ROUTE, args);
      for (std::size_t r = 0; r < 8; ++r) {
        CAPTURE(r);
        std::vector<double> p(37);
        double sum = 0.0;
        for (std::size_t e = 0; e < 37; ++e)
          sum += p[e] = std::exp(logits[r * 37 + e] - 200.0 * (r == 4));
        for (double& value : p) value /= sum;
        std::vector<int32_t> order(37);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return logits[r * 37 + static_cast<std::size_t>(a)] >
                 logits[r * 37 + static_cast<std::size_t>(b)];
        });
        double chosen_sum = 0.0;
        for (std::size_t j = 0; j < 6; ++j) chosen_sum += p[static_cast<std::size_t>(order[j])];
        for (std::size_t j = 0; j < 6; ++j) {
          if (r != 4 || j == 0) CHECK(ids[r * 6 + j] == order[j]);
          const double expected =
              p[static_cast<std::size_t>(order[j])] / (normalise ? chosen_sum : 1.0);
          if (r != 4 || j == 0) {
            CHECK(static_cast<double>(weights[r * 6 + j]) ==
                  doctest::Approx(expected).epsilon(1e-5));
          }
        }
      }
      CHECK(ids[8 * 6] == -7);
    }
  }
}

TEST_CASE("a NaN logit gives distinct experts and NaN weights") {
  CpuDevice device({.threads = 1});
  std::vector<float> logits = {1.0f, NAN, 3.0f, 2.0f};
  std::vector<int32_t> ids(3);
  std::vector<float> weights(3);
  frt_moe_route_args args{};
  args.rows = 1;
  args.experts = 4;
  args.experts_per_token = 3;
  args.logits = logits.data();
  args.ids = ids.data();
  args.weights = weights.data();
  device.run(FRT_OP_MOE_ROUTE, args);
  CHECK(ids == std::vector<int32_t>{0, 1, 2});
  CHECK(std::isnan(weights[0]));
}

TEST_CASE("experts of every format are right, for one row and for many") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const Packing& packing : all_packings()) {
      CAPTURE(packing.name);
      const bool fp4 = packing.format == frt::kWeightNvfp4;
      const Moe moe(packing, 5, 2, fp4 ? 80 : 75, fp4 ? 96 : 71);
      for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const int32_t rows : {1, 3, 50}) {
          CAPTURE(rows);
          const auto count = static_cast<std::size_t>(rows * moe.inputs);
          const Tensor x = random_tensor(dtype, count, 7);
          std::vector<int32_t> ids;
          std::vector<float> weights;
          for (int32_t r = 0; r < rows; ++r) {
            ids.insert(ids.end(), {(r * 3 + 1) % 5, (r * 3 + 4) % 5});
            weights.insert(weights.end(), {0.7f, 0.25f});
          }
          Tensor y(dtype, count, 3.0f);
          device.run(FRT_OP_MOE_EXPERTS, experts_args(moe, dtype, rows, x, ids, weights, y));
          double worst = 0.0;  // as a share of the tolerance
          for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
            const Mixture expected = mixture(moe, x, r, &ids[r * 2], &weights[r * 2]);
            for (std::size_t n = 0; n < expected.y.size(); ++n) {
              // bf16 rounds gate, up and their product: 3 x 2^-9 each, and once more at the end.
              const double relative = dtype == FRT_DTYPE_F32 ? 1e-4 : 0.02;
              const double error = std::fabs(y[r * expected.y.size() + n] - expected.y[n]);
              const double share = error / (relative * expected.magnitude[n] + 1e-20);
              if (!std::isnan(worst) && !(share <= worst)) worst = share;
            }
          }
          CHECK(worst <= 1.0);
          Tensor again(dtype, count);
          device.run_captured(FRT_OP_MOE_EXPERTS,
                              experts_args(moe, dtype, rows, x, ids, weights, again), 2);
          CHECK(again == y);
        }
      }
    }
  }
}

TEST_CASE("a row's mixture has the same bits whatever rows are beside it; bad ids add nothing") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    const Moe moe(all_packings()[1], 6, 3, 64, 48);
    const int32_t rows = 40;
    const Tensor x = random_tensor(FRT_DTYPE_BF16, 40 * 64, 7);
    std::vector<int32_t> ids;
    std::vector<float> weights;
    for (int32_t r = 0; r < rows; ++r) {
      ids.insert(ids.end(), {r % 6, (r + 2) % 6, (r + 3) % 6});
      weights.insert(weights.end(), {0.5f, 0.3f, 0.2f});
    }
    Tensor all(FRT_DTYPE_BF16, 40 * 64);
    device.run(FRT_OP_MOE_EXPERTS, experts_args(moe, FRT_DTYPE_BF16, rows, x, ids, weights, all));
    int32_t row_count = 1;
    Tensor first(FRT_DTYPE_BF16, 40 * 64, 9.0f);
    frt_moe_experts_args args = experts_args(moe, FRT_DTYPE_BF16, rows, x, ids, weights, first);
    args.row_count = &row_count;
    device.run(FRT_OP_MOE_EXPERTS, args);
    CHECK(std::equal(first.bf16.begin(), first.bf16.begin() + 64, all.bf16.begin()));
    CHECK(first[64] == 9.0);
    row_count = 0;
    first = Tensor(FRT_DTYPE_BF16, 40 * 64, 9.0f);
    args.y = first.data();
    device.run(FRT_OP_MOE_EXPERTS, args);
    CHECK(first[0] == 9.0);

    ids[0] = -1;
    ids[2] = 6;
    Tensor partial(FRT_DTYPE_BF16, 40 * 64);
    args = experts_args(moe, FRT_DTYPE_BF16, rows, x, ids, weights, partial);
    device.run(FRT_OP_MOE_EXPERTS, args);
    const Mixture expected = mixture(moe, x, 0, &ids[0], &weights[0]);
    bool right = true;
    for (std::size_t n = 0; n < 64; ++n) {
      right &= std::fabs(partial[n] - expected.y[n]) <= 0.02 * expected.magnitude[n] + 1e-20;
    }
    CHECK(right);
  }
}

TEST_CASE("combining adds the shared expert, gated") {
  for (const CpuOptions& setup : all_setups()) {
    CpuDevice device(setup);
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      Tensor routed = random_tensor(dtype, 4 * 37, 1);
      const Tensor before = routed;
      const Tensor shared = random_tensor(dtype, 4 * 37, 2);
      const Tensor gate = random_tensor(FRT_DTYPE_F32, 4, 3, 3.0f);
      frt_moe_combine_args args{};
      args.dtype = dtype;
      args.rows = 4;
      args.width = 37;
      args.routed = routed.data();
      args.shared = shared.data();
      args.gate = gate.f32.data();
      args.y = routed.data();
      device.run(FRT_OP_MOE_COMBINE, args);
      bool right = true;
      for (std::size_t i = 0; i < 4 * 37; ++i) {
        const double expected = before[i] + shared[i] / (1.0 + std::exp(-gate[i / 37]));
        const double relative = dtype == FRT_DTYPE_F32 ? 1e-6 : 1.0 / 255;
        right &= std::fabs(routed[i] - expected) <= relative * std::fabs(expected) + 1e-6;
      }
      CHECK(right);
    }
  }
}

TEST_CASE("the block has the bits of its composition") {
  for (const CpuOptions& setup : all_setups()) {
    CAPTURE(describe(setup));
    CpuDevice device(setup);
    for (const std::size_t packing : {1u, 2u, 10u}) {
      for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
        for (const int32_t rows : {1, 4, 40}) {
          CAPTURE(packing);
          CAPTURE(rows);
          const Moe moe(all_packings()[packing], 6, 2, 96, 64);
          const PackedWeight router(all_packings()[1], 6, 96, 1);
          const PackedWeight shared_gate(all_packings()[packing], 80, 96, 2);
          const PackedWeight shared_up(all_packings()[packing], 80, 96, 3);
          const PackedWeight shared_down(all_packings()[packing], 96, 80, 4);
          const PackedWeight scale(all_packings()[1], 1, 96, 5);
          const auto r = static_cast<std::size_t>(rows);
          const Tensor norm = random_tensor(FRT_DTYPE_F32, 96, 6);
          const Tensor delta = random_tensor(dtype, r * 96, 7);
          Tensor residual = random_tensor(FRT_DTYPE_F32, r * 96, 8);
          Tensor other_residual = residual;

          Tensor x(dtype, r * 96), y(dtype, r * 96), shared_y(dtype, r * 96);
          Tensor hidden(dtype, r * 160);
          std::vector<float> logits(r * 6), weights(r * 2), shared_scale(r);
          std::vector<int32_t> ids(r * 2);
          frt_moe_block_args block{};
          block.residual_dtype = FRT_DTYPE_F32;
          block.dtype = dtype;
          block.rows = rows;
          block.experts = 6;
          block.experts_per_token = 2;
          block.normalise = 1;
          block.epsilon = 1e-6f;
          block.residual = residual.data();
          block.delta = delta.data();
          block.norm_weight = norm.f32.data();
          block.x = x.data();
          block.router = router.weight();
          block.gate = moe.gate.weight();
          block.up = moe.up.weight();
          block.down = moe.down.weight();
          block.shared_gate_weight = shared_gate.weight();
          block.shared_up_weight = shared_up.weight();
          block.shared_down_weight = shared_down.weight();
          block.shared_expert_gate = scale.weight();
          block.logits = logits.data();
          block.ids = ids.data();
          block.weights = weights.data();
          block.shared_hidden = hidden.data();
          block.shared_y = shared_y.data();
          block.shared_scale = shared_scale.data();
          block.y = y.data();
          device.run(FRT_OP_MOE_BLOCK, block);

          Tensor cx(dtype, r * 96), cy(dtype, r * 96), cshared(dtype, r * 96), ch(dtype, r * 80);
          Tensor cgate(dtype, r * 80);
          std::vector<float> clogits(r * 6), cweights(r * 2), cscale(r);
          std::vector<int32_t> cids(r * 2);
          frt_add_rms_norm_args normed{};
          normed.residual_dtype = FRT_DTYPE_F32;
          normed.dtype = dtype;
          normed.rows = rows;
          normed.width = 96;
          normed.epsilon = 1e-6f;
          normed.residual = other_residual.data();
          normed.delta = delta.data();
          normed.weight = norm.f32.data();
          normed.y = cx.data();
          device.run(FRT_OP_ADD_RMS_NORM, normed);
          const auto product = [&](const Tensor& from, const PackedWeight& weight,
                                   frt_dtype y_dtype, void* to) {
            frt_linear_args args{};
            args.x_dtype = dtype;
            args.y_dtype = y_dtype;
            args.rows = rows;
            args.x = from.data();
            args.x_stride = weight.cols();
            args.weight = weight.weight();
            args.y = to;
            args.y_stride = weight.rows();
            device.run(FRT_OP_LINEAR, args);
          };
          product(cx, router, FRT_DTYPE_F32, clogits.data());
          frt_moe_route_args route{};
          route.rows = rows;
          route.experts = 6;
          route.experts_per_token = 2;
          route.normalise = 1;
          route.logits = clogits.data();
          route.ids = cids.data();
          route.weights = cweights.data();
          device.run(FRT_OP_MOE_ROUTE, route);
          device.run(FRT_OP_MOE_EXPERTS, experts_args(moe, dtype, rows, cx, cids, cweights, cy));
          CHECK(residual == other_residual);
          CHECK(logits == clogits);
          CHECK(ids == cids);
          CHECK(weights == cweights);

          frt_norm_gate_up_args gate_up{};
          gate_up.dtype = dtype;
          gate_up.rows = rows;
          gate_up.x = cx.data();
          gate_up.gate_weight = shared_gate.weight();
          gate_up.up_weight = shared_up.weight();
          gate_up.gate = cgate.data();
          gate_up.h = ch.data();
          device.run(FRT_OP_NORM_GATE_UP, gate_up);
          product(ch, shared_down, dtype, cshared.data());
          product(cx, scale, FRT_DTYPE_F32, cscale.data());
          frt_moe_combine_args combine{};
          combine.dtype = dtype;
          combine.rows = rows;
          combine.width = 96;
          combine.routed = cy.data();
          combine.shared = cshared.data();
          combine.gate = cscale.data();
          combine.y = cy.data();
          device.run(FRT_OP_MOE_COMBINE, combine);
          CHECK(shared_scale == cscale);
          CHECK(y == cy);

          // Without a shared expert, y is the routed sum.
          block.shared_gate_weight.rows = 0;
          block.residual = nullptr;
          block.delta = nullptr;
          device.run_captured(FRT_OP_MOE_BLOCK, block);
          device.run(FRT_OP_MOE_EXPERTS, experts_args(moe, dtype, rows, cx, cids, cweights, cy));
          CHECK(y == cy);
        }
      }
    }
  }
}

TEST_CASE("wrong mixture arguments are refused with the operator and the argument") {
  CpuDevice device({.threads = 1});
  const Moe moe(all_packings()[2], 3, 2, 32, 16);
  Tensor x(FRT_DTYPE_F32, 32), y(FRT_DTYPE_F32, 32);
  const std::vector<int32_t> ids = {0, 1};
  const std::vector<float> weights = {0.5f, 0.5f};
  const frt_moe_experts_args good = experts_args(moe, FRT_DTYPE_F32, 1, x, ids, weights, y);
  CHECK(device.refusal(FRT_OP_MOE_EXPERTS, good) == FRT_OK);
  const auto refused = [&](const char* argument, auto&& change) {
    frt_moe_experts_args args = good;
    change(args);
    std::string message;
    CHECK(device.refusal(FRT_OP_MOE_EXPERTS, args, &message) == FRT_ERR_INVALID_ARGUMENT);
    CAPTURE(message);
    CHECK(message.find(std::string(FRT_OP_MOE_EXPERTS) + ": " + argument + " ") == 0);
  };
  using Args = frt_moe_experts_args;
  refused("dtype", [](Args& a) { a.dtype = FRT_DTYPE_F16; });
  refused("rows", [](Args& a) { a.rows = -1; });
  refused("experts_per_token", [](Args& a) { a.experts_per_token = 4; });
  refused("ids", [](Args& a) { a.ids = nullptr; });
  refused("gate.expert.data", [](Args& a) { a.gate.expert.data = nullptr; });
  refused("gate.data_stride", [](Args& a) { a.gate.data_stride = 8; });
  refused("up.scale_stride", [](Args& a) { a.up.scale_stride = 0; });
  refused("up.expert.rows", [](Args& a) { a.up.expert.rows = 8; });
  refused("down.expert.cols", [](Args& a) { a.down.expert.cols = 8; });

  frt_moe_route_args route{};
  route.rows = 1;
  route.experts = 4;
  route.experts_per_token = 5;
  std::string message;
  CHECK(device.refusal(FRT_OP_MOE_ROUTE, route, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("experts_per_token") != std::string::npos);
  frt_moe_block_args block{};
  block.dtype = FRT_DTYPE_F32;
  CHECK(device.refusal(FRT_OP_MOE_BLOCK, block, &message) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(message.find("frt.moe_block/1: router.format ") == 0);
}
