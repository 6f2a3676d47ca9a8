// SPDX-License-Identifier: Apache-2.0
// Root-mean-square norms: frt.rms_norm/1, frt.add_rms_norm/1, frt.gated_rms_norm/1.
//
// A row is read twice: once for its sum of squares (four running vector sums), once to scale it.
// Rows are the unit of parallelism, so a row's value never depends on the others.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <cmath>

#include "active.hpp"
#include "numbers.hpp"
#include "rms.hpp"
#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class X>
float inverse_rms(std::size_t width, float epsilon, const X* x) {
  const float squares = sum_lanes(width, [&](auto d, std::size_t i, auto sum) HWY_ATTR {
    const auto v = load(d, x + i);
    return hn::MulAdd(v, v, sum);
  });
  return 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
}

template <class X, class Y>
void scale_row(std::size_t width, float epsilon, const X* x, const float* weight, Y* y) {
  const float factor = inverse_rms(width, epsilon, x);
  for_lanes(width, [&](auto d, std::size_t i) HWY_ATTR {
    const auto v = hn::Mul(load(d, x + i), hn::Set(d, factor));
    store(d, hn::Mul(v, hn::LoadU(d, weight + i)), y + i);
  });
}

template <class X, class Y>
void gated_row(std::size_t width, float epsilon, const X* x, const Y* z, const float* weight,
               Y* y) {
  const float factor = inverse_rms(width, epsilon, x);
  for_lanes(width, [&](auto d, std::size_t i) HWY_ATTR {
    const auto v = hn::Mul(load(d, x + i), hn::Set(d, factor));
    const auto gate = silu(d, load(d, z + i));
    store(d, hn::Mul(hn::Mul(v, hn::LoadU(d, weight + i)), gate), y + i);
  });
}

template <class R, class T>
void add_row(std::size_t width, R* residual, const T* delta) {
  for_lanes(width, [&](auto d, std::size_t i) HWY_ATTR {
    store(d, hn::Add(load(d, residual + i), load(d, delta + i)), residual + i);
  });
}

// f(x of its type, y of its type)
template <class Function>
void with_types(frt_dtype x_dtype, const void* x, frt_dtype y_dtype, const void* y,
                Function&& function) {
  const auto with_x = [&](auto* typed_x) {
    if (y_dtype == FRT_DTYPE_F32) {
      function(typed_x, static_cast<const float*>(y));
    } else {
      function(typed_x, static_cast<const uint16_t*>(y));
    }
  };
  if (x_dtype == FRT_DTYPE_F32) {
    with_x(static_cast<const float*>(x));
  } else {
    with_x(static_cast<const uint16_t*>(x));
  }
}

void rms_row(int32_t width, float epsilon, frt_dtype x_dtype, const void* x, const float* weight,
             frt_dtype y_dtype, void* y) {
  with_types(x_dtype, x, y_dtype, y, [&]<class X, class Y>(const X* typed_x, const Y*) {
    scale_row(static_cast<std::size_t>(width), epsilon, typed_x, weight, static_cast<Y*>(y));
  });
}

void gated_rms_row(int32_t width, float epsilon, frt_dtype x_dtype, const void* x, frt_dtype dtype,
                   const void* z, const float* weight, void* y) {
  with_types(x_dtype, x, dtype, z, [&]<class X, class Y>(const X* typed_x, const Y* typed_z) {
    gated_row(static_cast<std::size_t>(width), epsilon, typed_x, typed_z, weight,
              static_cast<Y*>(y));
  });
}

void sum_row(int32_t width, frt_dtype residual_dtype, void* residual, frt_dtype dtype,
             const void* delta) {
  with_types(residual_dtype, residual, dtype, delta, [&]<class R, class T>(const R*, const T* t) {
    add_row(static_cast<std::size_t>(width), static_cast<R*>(residual), t);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <frt/ops/checks/norm.hpp>

#include "../device.hpp"
#include "reference.hpp"
#include "registry.hpp"

namespace frt::cpu {

HWY_EXPORT(rms_row);
HWY_EXPORT(gated_rms_row);
HWY_EXPORT(sum_row);

void rms_norm_row(bool plain, int32_t width, float epsilon, frt_dtype x_dtype, const void* x,
                  const float* weight, frt_dtype y_dtype, void* y) noexcept {
  if (plain) {
    reference::rms_norm(width, epsilon, x_dtype, x, weight, FRT_DTYPE_NONE, nullptr, y_dtype, y);
  } else {
    HWY_DYNAMIC_DISPATCH(rms_row)(width, epsilon, x_dtype, x, weight, y_dtype, y);
  }
}

void add_rms_norm_row(bool plain, int32_t width, float epsilon, frt_dtype residual_dtype,
                      void* residual, frt_dtype dtype, const void* delta, const float* weight,
                      void* y) noexcept {
  if (delta) {
    HWY_DYNAMIC_DISPATCH(sum_row)(width, residual_dtype, residual, dtype, delta);
  }
  if (y) rms_norm_row(plain, width, epsilon, residual_dtype, residual, weight, dtype, y);
}

void gated_rms_norm_row(bool plain, int32_t width, float epsilon, frt_dtype x_dtype, const void* x,
                        frt_dtype dtype, const void* z, const float* weight, void* y) noexcept {
  if (plain) {
    reference::rms_norm(width, epsilon, x_dtype, x, weight, dtype, z, dtype, y);
  } else {
    HWY_DYNAMIC_DISPATCH(gated_rms_row)(width, epsilon, x_dtype, x, dtype, z, weight, y);
  }
}

namespace {

std::unique_ptr<Node> prepare_rms_norm(Device& device, const frt_rms_norm_args& args) {
  check_rms_norm(Checks(FRT_OP_RMS_NORM), args);
  const bool plain = device.reference_numerics();
  return make_node([args, plain](Pool& pool, std::byte*) noexcept {
    pool.run(active_rows(args.rows, args.row_count), [&](int64_t row, int) {
      rms_norm_row(plain, args.width, args.epsilon, args.x_dtype,
                   element(args.x_dtype, args.x, row * args.x_stride), args.weight, args.y_dtype,
                   element(args.y_dtype, args.y, row * args.y_stride));
    });
  });
}

std::unique_ptr<Node> prepare_add_rms_norm(Device& device, const frt_add_rms_norm_args& args) {
  check_add_rms_norm(Checks(FRT_OP_ADD_RMS_NORM), args);
  const bool plain = device.reference_numerics();
  return make_node([args, plain](Pool& pool, std::byte*) noexcept {
    pool.run(active_rows(args.rows, args.row_count), [&](int64_t row, int) {
      const int64_t first = row * args.width;
      add_rms_norm_row(plain, args.width, args.epsilon, args.residual_dtype,
                       element(args.residual_dtype, args.residual, first), args.dtype,
                       args.delta ? element(args.dtype, args.delta, first) : nullptr, args.weight,
                       args.y ? element(args.dtype, args.y, first) : nullptr);
    });
  });
}

std::unique_ptr<Node> prepare_gated_rms_norm(Device& device, const frt_gated_rms_norm_args& args) {
  check_gated_rms_norm(Checks(FRT_OP_GATED_RMS_NORM), args);
  const bool plain = device.reference_numerics();
  return make_node([args, plain](Pool& pool, std::byte*) noexcept {
    pool.run(active_rows(args.rows, args.row_count), [&](int64_t row, int) {
      for (int64_t head = row * args.heads; head < (row + 1) * args.heads; ++head) {
        const int64_t first = head * args.width;
        gated_rms_norm_row(plain, args.width, args.epsilon, args.x_dtype,
                           element(args.x_dtype, args.x, first), args.dtype,
                           element(args.dtype, args.z, first), args.weight,
                           element(args.dtype, args.y, first));
      }
    });
  });
}

}  // namespace

void register_norm(KernelList& list) {
  list.add<frt_rms_norm_args>(FRT_OP_RMS_NORM, kFloatTypes, {}, prepare_rms_norm);
  list.add<frt_add_rms_norm_args>(FRT_OP_ADD_RMS_NORM, kFloatTypes, {}, prepare_add_rms_norm);
  list.add<frt_gated_rms_norm_args>(FRT_OP_GATED_RMS_NORM, kFloatTypes, {}, prepare_gated_rms_norm);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
