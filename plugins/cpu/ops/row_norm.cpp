// SPDX-License-Identifier: Apache-2.0
// frt.row_norm/1: norms of rows of every kind.
//
// A row is read twice or, with a mean, three times: the deviation is the mean of (x - mean)^2 and
// not a difference of squares, which loses digits. Rows are the unit of parallelism, so a row's
// value never depends on the others.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/row_norm.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <cmath>

#include "active.hpp"
#include "numbers.hpp"
#include "row_norm.hpp"
#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class X>
float mean_of(std::size_t width, const X* x) {
  const float sum = sum_lanes(width, [&](auto d, std::size_t i, auto partial)
                                         HWY_ATTR { return hn::Add(load(d, x + i), partial); });
  return sum / static_cast<float>(width);
}

template <class X>
float mean_square(std::size_t width, const X* x, float center) {
  const float sum = sum_lanes(width, [&](auto d, std::size_t i, auto partial) HWY_ATTR {
    const auto v = hn::Sub(load(d, x + i), hn::Set(d, center));
    return hn::MulAdd(v, v, partial);
  });
  return sum / static_cast<float>(width);
}

// y = (x - mean) * factor * (weight + offset) + shift
template <class X, class Y>
void typed_row(const frt_norm& norm, const float* modulation, std::size_t width, const X* x, Y* y) {
  if (norm.kind == FRT_NORM_NONE) {
    for_lanes(width, [&](auto d, std::size_t i) HWY_ATTR { store(d, load(d, x + i), y + i); });
    return;
  }
  const bool layer = norm.kind == FRT_NORM_LAYER;
  const bool adaptive = norm.kind == FRT_NORM_ADAPTIVE;
  const float mean = layer ? mean_of(width, x) : 0.0f;
  const float factor = 1.0f / std::sqrt(mean_square(width, x, mean) + norm.epsilon);
  const float* weight = adaptive ? modulation : norm.weight;
  const float* shift = adaptive ? modulation + width : layer ? norm.bias : nullptr;
  const float offset = adaptive ? 1.0f : 0.0f;
  for_lanes(width, [&](auto d, std::size_t i) HWY_ATTR {
    auto v = hn::Mul(hn::Sub(load(d, x + i), hn::Set(d, mean)), hn::Set(d, factor));
    v = hn::Mul(v, hn::Add(hn::LoadU(d, weight + i), hn::Set(d, offset)));
    if (shift) v = hn::Add(v, hn::LoadU(d, shift + i));
    store(d, v, y + i);
  });
}

template <class X>
void row_from(const frt_norm& norm, const float* modulation, std::size_t width, const X* x,
              frt_dtype y_dtype, void* y) {
  if (y_dtype == FRT_DTYPE_F32) {
    typed_row(norm, modulation, width, x, static_cast<float*>(y));
  } else {
    typed_row(norm, modulation, width, x, static_cast<uint16_t*>(y));
  }
}

void any_row(const frt_norm& norm, const float* modulation, int64_t width, frt_dtype x_dtype,
             const void* x, frt_dtype y_dtype, void* y) {
  const auto size = static_cast<std::size_t>(width);
  if (x_dtype == FRT_DTYPE_F32) {
    row_from(norm, modulation, size, static_cast<const float*>(x), y_dtype, y);
  } else {
    row_from(norm, modulation, size, static_cast<const uint16_t*>(x), y_dtype, y);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <frt/ops/checks/row_norm.hpp>

#include "../device.hpp"
#include "registry.hpp"

namespace frt::cpu {

HWY_EXPORT(any_row);

namespace {

// As the header of the operator states it, with sums in double.
void plain_row(const frt_norm& norm, const float* modulation, int64_t width, frt_dtype x_dtype,
               const void* x, frt_dtype y_dtype, void* y) noexcept {
  double mean = 0, square = 0;
  if (norm.kind == FRT_NORM_LAYER) {
    for (int64_t i = 0; i < width; ++i) mean += load_float(x_dtype, x, i);
    mean /= static_cast<double>(width);
  }
  for (int64_t i = 0; i < width; ++i) {
    const double v = load_float(x_dtype, x, i) - mean;
    square += v * v;
  }
  const double factor = 1.0 / std::sqrt(square / static_cast<double>(width) + norm.epsilon);
  for (int64_t i = 0; i < width; ++i) {
    double v = load_float(x_dtype, x, i);
    if (norm.kind != FRT_NORM_NONE) v = (v - mean) * factor;
    if (norm.kind == FRT_NORM_RMS || norm.kind == FRT_NORM_LAYER) v *= norm.weight[i];
    if (norm.kind == FRT_NORM_LAYER) v += norm.bias[i];
    if (norm.kind == FRT_NORM_ADAPTIVE) v = v * (1.0 + modulation[i]) + modulation[width + i];
    store_float(y_dtype, y, i, static_cast<float>(v));
  }
}

}  // namespace

void norm_row(bool reference, const frt_norm& norm, int64_t row, int64_t width, frt_dtype x_dtype,
              const void* x, frt_dtype y_dtype, void* y) noexcept {
  const float* modulation =
      norm.kind == FRT_NORM_ADAPTIVE ? modulation_of(norm.modulation, row) : nullptr;
  if (reference) {
    plain_row(norm, modulation, width, x_dtype, x, y_dtype, y);
  } else {
    HWY_DYNAMIC_DISPATCH(any_row)(norm, modulation, width, x_dtype, x, y_dtype, y);
  }
}

namespace {

std::unique_ptr<Node> prepare_row_norm(Device& device, const frt_row_norm_args& args) {
  check_row_norm(Checks(FRT_OP_ROW_NORM), args);
  const bool plain = device.reference_numerics();
  return make_node([args, plain](Pool& pool, std::byte*) noexcept {
    pool.run(active_rows(args.rows, args.row_count), [&](int64_t row, int) {
      norm_row(plain, args.norm, row, args.width, args.x_dtype,
               element(args.x_dtype, args.x, row * args.x_stride), args.y_dtype,
               element(args.y_dtype, args.y, row * args.y_stride));
    });
  });
}

}  // namespace

void register_row_norm(KernelList& list) {
  list.add<frt_row_norm_args>(FRT_OP_ROW_NORM, kFloatTypes, {}, prepare_row_norm);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
