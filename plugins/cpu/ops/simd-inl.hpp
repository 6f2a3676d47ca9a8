// SPDX-License-Identifier: Apache-2.0
// simd-inl.hpp - what the vectorised operators share, compiled once per Highway target: loads and
// stores that convert to f32, exp and its relatives that keep NaN, loops over any count.
//
// Storage types: float is f32, uint16_t is bf16, uint8_t is f8_e4m3. Include it inside the
// foreach_target pattern only (see norm.cpp).
#if defined(FRT_CPU_SIMD_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef FRT_CPU_SIMD_INL_HPP_
#undef FRT_CPU_SIMD_INL_HPP_
#else
#define FRT_CPU_SIMD_INL_HPP_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using OneF32 = hn::CappedTag<float, 1>;
template <class D>
using Vec = hn::Vec<D>;

// ---- access ----------------------------------------------------------------------------------

template <class D>
HWY_INLINE Vec<D> load(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE Vec<D> load(D d, const uint16_t* p) {
  const hn::Rebind<hwy::bfloat16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::bfloat16_t*>(p)));
}
// Through f16, whose hardware conversion knows subnormals: e4m3 bits moved up by 7 are the f16 of
// value / 256. The one pattern that would be 480 is NaN.
template <class D>
HWY_INLINE Vec<D> load(D d, const uint8_t* p) {
  const hn::Rebind<uint8_t, D> du8;
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto bits = hn::PromoteTo(du16, hn::LoadU(du8, p));
  const auto sign = hn::ShiftLeft<8>(hn::And(bits, hn::Set(du16, uint16_t{0x80})));
  const auto rest = hn::ShiftLeft<7>(hn::And(bits, hn::Set(du16, uint16_t{0x7F})));
  const auto value =
      hn::Mul(hn::PromoteTo(d, hn::BitCast(df16, hn::Or(sign, rest))), hn::Set(d, 256.0f));
  return hn::IfThenElse(hn::Eq(hn::Abs(value), hn::Set(d, 480.0f)),
                        hn::Set(d, std::numeric_limits<float>::quiet_NaN()), value);
}

// The bits of `v` rounded to bf16 (nearest even, NaN stays NaN) in the upper halves.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_bf16([[maybe_unused]] D d, Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(even, hn::Set(du, 0x7FFFu)));
  const auto nan = hn::Or(bits, hn::Set(du, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded);
}

template <class D>
HWY_INLINE void store(D d, Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void store(D d, Vec<D> v, uint16_t* p) {
  const hn::Rebind<hwy::bfloat16_t, D> narrow;
  // DemoteTo cuts the lower half off.
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(d, round_bf16(d, v))), narrow,
             reinterpret_cast<hwy::bfloat16_t*>(p));
}

// What store() and load() through T make of `v`.
template <class T, class D>
HWY_INLINE Vec<D> rounded_through(D d, Vec<D> v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::And(round_bf16(d, v), hn::Set(du, 0xFFFF0000u)));
  }
}

// The largest of all lanes, none of which is NaN.
template <class D>
HWY_INLINE float largest_lane(D d, Vec<D> v) {
#if HWY_TARGET == HWY_EMU128
  // Highway 1.0's MaxOfLanes starts from the lowest finite number there.
  float lanes[hn::MaxLanes(d)];
  hn::StoreU(v, d, lanes);
  return *std::max_element(lanes, lanes + hn::Lanes(d));
#else
  return hn::GetLane(hn::MaxOfLanes(d, v));
#endif
}

// ---- loops -----------------------------------------------------------------------------------

// body(tag, i) for blocks of a whole vector, then for the rest one by one.
template <class Body>
HWY_INLINE void for_lanes(std::size_t count, Body&& body) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(d, i);
  for (; i < count; ++i) body(OneF32(), i);
}

// Sum over i of body(tag, i, sum), which returns sum + its lanes' part. Four running sums.
template <class Body>
HWY_INLINE float sum_lanes(std::size_t count, Body&& body) {
  const F32 d;
  const OneF32 d1;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = body(d, i, s0);
    s1 = body(d, i + lanes, s1);
    s2 = body(d, i + 2 * lanes, s2);
    s3 = body(d, i + 3 * lanes, s3);
  }
  for (; i + lanes <= count; i += lanes) s0 = body(d, i, s0);
  auto rest = hn::Zero(d1);
  for (; i < count; ++i) rest = body(d1, i, rest);
  const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  return sum + hn::GetLane(rest);
}

// ---- functions -------------------------------------------------------------------------------

// e^x; 0 far below, infinity far above, NaN for NaN.
template <class D>
HWY_INLINE Vec<D> exp(D d, Vec<D> x) {
  const auto y = hn::Exp(d, hn::Min(x, hn::Set(d, 89.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class D>
HWY_INLINE Vec<D> sigmoid(D d, Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

template <class D>
HWY_INLINE Vec<D> silu(D d, Vec<D> x) {
  return hn::Mul(x, sigmoid(d, x));
}

// z/2 (1 + tanh(u)) = z sigmoid(2 u)
template <class D>
HWY_INLINE Vec<D> gelu_tanh(D d, Vec<D> x) {
  const auto cube = hn::Mul(hn::Mul(hn::Set(d, 0.044715f), x), hn::Mul(x, x));
  const auto u = hn::Mul(hn::Set(d, 1.5957691216057308f), hn::Add(x, cube));
  return hn::Mul(x, sigmoid(d, u));
}

}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggle
