// SPDX-License-Identifier: Apache-2.0
// The rows of elementwise.hpp with the vectors of every Highway target, and in plain loops.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_rows.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <frt/ops/dense.h>

#include "elementwise.hpp"
#include "numbers.hpp"
#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void binary_typed(Binary operation, std::size_t count, const T* a, const T* b, T* y) {
  switch (operation) {
    case Binary::kSiluMul:
      for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
        store(d, hn::Mul(silu(d, load(d, a + i)), load(d, b + i)), y + i);
      });
      break;
    case Binary::kSigmoidMul:
      for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
        store(d, hn::Mul(load(d, a + i), sigmoid(d, load(d, b + i))), y + i);
      });
      break;
    case Binary::kAdd:
      for_lanes(count, [&](auto d, std::size_t i)
                           HWY_ATTR { store(d, hn::Add(load(d, a + i), load(d, b + i)), y + i); });
      break;
    case Binary::kGeluMul:
      for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
        store(d, hn::Mul(gelu_tanh(d, load(d, a + i)), load(d, b + i)), y + i);
      });
      break;
  }
}

void binary(Binary operation, int64_t count, frt_dtype dtype, const void* a, const void* b,
            void* y) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == FRT_DTYPE_F32) {
    binary_typed(operation, size, static_cast<const float*>(a), static_cast<const float*>(b),
                 static_cast<float*>(y));
  } else {
    binary_typed(operation, size, static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b),
                 static_cast<uint16_t*>(y));
  }
}

template <class T>
void store_typed(std::size_t count, const float* x, const float* scales, bool accumulate, T* y) {
  for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
    auto v = hn::LoadU(d, x + i);
    if (scales) v = hn::Mul(v, hn::LoadU(d, scales + i));
    if (accumulate) v = hn::Add(v, load(d, y + i));
    store(d, v, y + i);
  });
}

void store_any(int64_t count, const float* x, const float* scales, frt_dtype dtype, bool accumulate,
               void* y) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == FRT_DTYPE_F32) {
    store_typed(size, x, scales, accumulate, static_cast<float*>(y));
  } else {
    store_typed(size, x, scales, accumulate, static_cast<uint16_t*>(y));
  }
}

template <class T>
void finish_typed(std::size_t count, const float* x, const float* scales, const RowFinish& finish,
                  T* y) {
  for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
    auto v = hn::LoadU(d, x + i);
    if (scales) v = hn::Mul(v, hn::LoadU(d, scales + i));
    if (finish.bias) v = hn::Add(v, hn::LoadU(d, finish.bias + i));
    if (finish.activation == FRT_ACTIVATION_GELU) v = gelu_tanh(d, v);
    if (finish.activation == FRT_ACTIVATION_SILU) v = silu(d, v);
    if (finish.gate) v = hn::Mul(v, hn::LoadU(d, finish.gate + i));
    if (finish.addend) v = hn::Add(v, hn::LoadU(d, finish.addend + i));
    if (finish.accumulate) v = hn::Add(v, load(d, y + i));
    store(d, v, y + i);
  });
}

void finish_any(int64_t count, const float* x, const float* scales, const RowFinish& finish,
                frt_dtype dtype, void* y) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == FRT_DTYPE_F32) {
    finish_typed(size, x, scales, finish, static_cast<float*>(y));
  } else {
    finish_typed(size, x, scales, finish, static_cast<uint16_t*>(y));
  }
}

template <class T>
void mix_typed(std::size_t count, int64_t parts, const float* weights, const float* x, T* y) {
  for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < parts; ++j) {
      const float* row = x + static_cast<std::size_t>(j) * count;
      sum = hn::MulAdd(hn::Set(d, weights[j]), hn::LoadU(d, row + i), sum);
    }
    store(d, sum, y + i);
  });
}

void mix(int64_t count, int64_t parts, const float* weights, const float* x, frt_dtype dtype,
         void* y) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == FRT_DTYPE_F32) {
    mix_typed(size, parts, weights, x, static_cast<float*>(y));
  } else {
    mix_typed(size, parts, weights, x, static_cast<uint16_t*>(y));
  }
}

template <class T>
void gated_add_typed(std::size_t count, const T* a, float factor, const T* b, T* y) {
  for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
    store(d, hn::MulAdd(hn::Set(d, factor), load(d, b + i), load(d, a + i)), y + i);
  });
}

void gated_add(int64_t count, frt_dtype dtype, const void* a, float factor, const void* b,
               void* y) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == FRT_DTYPE_F32) {
    gated_add_typed(size, static_cast<const float*>(a), factor, static_cast<const float*>(b),
                    static_cast<float*>(y));
  } else {
    gated_add_typed(size, static_cast<const uint16_t*>(a), factor, static_cast<const uint16_t*>(b),
                    static_cast<uint16_t*>(y));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frt::cpu {
namespace {

HWY_EXPORT(binary);
HWY_EXPORT(store_any);
HWY_EXPORT(finish_any);
HWY_EXPORT(mix);
HWY_EXPORT(gated_add);

float plain_binary(Binary operation, float a, float b) noexcept {
  switch (operation) {
    case Binary::kSiluMul:
      return silu(a) * b;
    case Binary::kSigmoidMul:
      return a * sigmoid(b);
    case Binary::kGeluMul:
      return gelu_tanh(a) * b;
    default:
      return a + b;
  }
}

}  // namespace

void binary_row(bool reference, Binary operation, int64_t count, frt_dtype dtype, const void* a,
                const void* b, void* y) noexcept {
  if (!reference) return HWY_DYNAMIC_DISPATCH(binary)(operation, count, dtype, a, b, y);
  for (int64_t i = 0; i < count; ++i) {
    const float value = plain_binary(operation, load_float(dtype, a, i), load_float(dtype, b, i));
    store_float(dtype, y, i, value);
  }
}

void store_row(bool reference, int64_t count, const float* x, const float* scales, frt_dtype dtype,
               bool accumulate, void* y) noexcept {
  if (!reference) {
    return HWY_DYNAMIC_DISPATCH(store_any)(count, x, scales, dtype, accumulate, y);
  }
  for (int64_t i = 0; i < count; ++i) {
    float value = scales ? x[i] * scales[i] : x[i];
    if (accumulate) value += load_float(dtype, y, i);
    store_float(dtype, y, i, value);
  }
}

void finish_row(bool reference, int64_t count, const float* x, const float* scales,
                const RowFinish& finish, frt_dtype dtype, void* y) noexcept {
  if (!reference) {
    return HWY_DYNAMIC_DISPATCH(finish_any)(count, x, scales, finish, dtype, y);
  }
  for (int64_t i = 0; i < count; ++i) {
    float value = scales ? x[i] * scales[i] : x[i];
    if (finish.bias) value += finish.bias[i];
    if (finish.activation == FRT_ACTIVATION_GELU) value = gelu_tanh(value);
    if (finish.activation == FRT_ACTIVATION_SILU) value = silu(value);
    if (finish.gate) value *= finish.gate[i];
    if (finish.addend) value += finish.addend[i];
    if (finish.accumulate) value += load_float(dtype, y, i);
    store_float(dtype, y, i, value);
  }
}

void mix_row(bool reference, int64_t count, int64_t parts, const float* weights, const float* x,
             frt_dtype dtype, void* y) noexcept {
  if (!reference) return HWY_DYNAMIC_DISPATCH(mix)(count, parts, weights, x, dtype, y);
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0.0f;
    for (int64_t j = 0; j < parts; ++j) sum += weights[j] * x[j * count + i];
    store_float(dtype, y, i, sum);
  }
}

void gated_add_row(bool reference, int64_t count, frt_dtype dtype, const void* a, float gate,
                   const void* b, void* y) noexcept {
  const float factor = sigmoid(gate);
  if (!reference) return HWY_DYNAMIC_DISPATCH(gated_add)(count, dtype, a, factor, b, y);
  for (int64_t i = 0; i < count; ++i) {
    store_float(dtype, y, i, load_float(dtype, a, i) + factor * load_float(dtype, b, i));
  }
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
