// SPDX-License-Identifier: Apache-2.0
// frt.causal_conv/1: c = silu(depthwise causal convolution of u).
//
// Channels are independent, so a task takes a block of channels of one sequence through all its
// rows. The window is read as rows -history .. -1 and replaced, unless it is kept, when the rows
// are done.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/causal_conv.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per target

#include <frt/ops/gated_delta.h>

#include <cstring>

#include "active.hpp"
#include "causal_conv.hpp"
#include "numbers.hpp"
#include "simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace frt::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kMaxWidth = 8;

template <class T>
void conv_typed(const frt_causal_conv_args& args, int64_t b, int32_t first, int32_t end) {
  const int32_t length = active_length(args.sequences, b);
  if (length == 0) return;
  const int64_t channels = args.channels;
  const int32_t history = args.width - 1;
  const auto count = static_cast<std::size_t>(end - first);
  const T* u = static_cast<const T*>(args.u) + b * args.sequences.rows * channels + first;
  T* c = static_cast<T*>(args.c) + b * args.sequences.rows * channels + first;
  T* window =
      static_cast<T*>(byte_offset(args.window, args.sequences.slot[b] * args.slot_stride)) + first;
  const auto row = [&](int64_t t) {
    return t >= 0 ? u + t * channels : window + (history + t) * channels;
  };
  for (int32_t t = 0; t < length; ++t) {
    const T* taps[kMaxWidth];
    for (int32_t w = 0; w < args.width; ++w) taps[w] = row(t - history + w);
    T* y = c + t * channels;
    for_lanes(count, [&](auto d, std::size_t i) HWY_ATTR {
      const float* weight = args.conv_weight + first + i;
      auto sum = hn::Zero(d);
      for (int32_t w = 0; w < args.width; ++w) {
        sum = hn::MulAdd(hn::LoadU(d, weight + w * channels), load(d, taps[w] + i), sum);
      }
      store(d, silu(d, sum), y + i);
    });
  }
  if (args.keep_window != 0) return;
  for (int32_t w = 0; w < history; ++w) {
    std::memmove(window + w * channels, row(length - history + w), count * sizeof(T));
  }
}

void conv_channels(const frt_causal_conv_args& args, int64_t b, int32_t first, int32_t end) {
  if (args.dtype == FRT_DTYPE_F32) {
    conv_typed<float>(args, b, first, end);
  } else {
    conv_typed<uint16_t>(args, b, first, end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace frt::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <frt/ops/checks/gated_delta.hpp>

#include <algorithm>

#include "../device.hpp"
#include "reference.hpp"
#include "registry.hpp"

namespace frt::cpu {

HWY_EXPORT(conv_channels);

void causal_conv_channels(bool plain, const frt_causal_conv_args& args, int64_t b, int32_t first,
                          int32_t end) noexcept {
  if (plain) {
    reference::causal_conv(args, b, first, end);
  } else {
    HWY_DYNAMIC_DISPATCH(conv_channels)(args, b, first, end);
  }
}

void run_causal_conv(bool plain, const frt_causal_conv_args& args, Pool& pool) noexcept {
  // One decode row is split coarsely: handing a task over costs more than 1000 channels.
  const int32_t block = args.sequences.rows == 1 ? 2048 : 256;
  const int64_t blocks = (args.channels + block - 1) / block;
  pool.run(args.sequences.count * blocks, [&](int64_t task, int) {
    const auto first = static_cast<int32_t>(task % blocks) * block;
    causal_conv_channels(plain, args, task / blocks, first, std::min(args.channels, first + block));
  });
}

namespace {

std::unique_ptr<Node> prepare_causal_conv(Device& device, const frt_causal_conv_args& args) {
  check_causal_conv(Checks(FRT_OP_CAUSAL_CONV), args);
  return make_node([args, plain = device.reference_numerics()](Pool& pool, std::byte*) noexcept {
    run_causal_conv(plain, args, pool);
  });
}

}  // namespace

void register_causal_conv(KernelList& list) {
  list.add<frt_causal_conv_args>(FRT_OP_CAUSAL_CONV, kFloatTypes, {}, prepare_causal_conv);
}

}  // namespace frt::cpu
#endif  // HWY_ONCE
