// SPDX-License-Identifier: Apache-2.0
// frt.gated_delta/1 and frt.gated_delta_block/1.
//
// Value heads are independent: a task is one value head of one sequence.
#include <frt/ops/gated_delta.h>

#include "../device.hpp"
#include "causal_conv.hpp"
#include "checks.hpp"
#include "numbers.hpp"
#include "reference.hpp"
#include "registry.hpp"
#include "rms.hpp"

namespace frt::cpu {
namespace {

void check_gated_delta(const Checks& check, const frt_gated_delta_args& args) {
  check.dtype("dtype", args.dtype);
  check.sequences(args.sequences);
  check.positive("key_heads", args.key_heads);
  check.positive("value_heads", args.value_heads);
  check.require(args.value_heads % args.key_heads == 0, "value_heads",
                "is not a multiple of key_heads");
  check.positive("key_dim", args.key_dim);
  check.positive("value_dim", args.value_dim);
  check.positive("chunk", args.chunk);
  check.pointer("c", args.c);
  check.pointer("a", args.a);
  check.pointer("b", args.b);
  check.pointer("decay", args.decay);
  check.pointer("dt_bias", args.dt_bias);
  check.pointer("state", args.state);
  check.pointer("o", args.o);
}

std::size_t work_floats(const frt_gated_delta_args& args) {
  return 2 * (static_cast<std::size_t>(args.key_dim) + static_cast<std::size_t>(args.value_dim));
}

std::unique_ptr<Node> prepare_gated_delta(Device& device, const frt_gated_delta_args& args) {
  check_gated_delta(Checks(FRT_OP_GATED_DELTA), args);
  const auto workers = static_cast<std::size_t>(device.options().threads);
  const std::size_t floats = work_floats(args);
  const auto body = [args, floats](Pool& pool, std::byte* scratch) noexcept {
    pool.run(args.sequences.count * args.value_heads, [&](int64_t task, int worker) {
      reference::gated_delta(
          args, task / args.value_heads, static_cast<int32_t>(task % args.value_heads),
          reinterpret_cast<float*>(scratch) + static_cast<std::size_t>(worker) * floats);
    });
  };
  return make_node(body, workers * floats * sizeof(float));
}

std::unique_ptr<Node> prepare_gated_delta_block(Device& device,
                                                const frt_gated_delta_block_args& args) {
  const Checks check(FRT_OP_GATED_DELTA_BLOCK);
  check_causal_conv(check, args.conv);
  check_gated_delta(check, args.delta);
  check.require(args.conv.dtype == args.delta.dtype, "conv.dtype", "is not delta.dtype");
  check.require(args.conv.c == args.delta.c, "delta.c", "is not conv.c");
  check.require(
      args.conv.channels == 2LL * args.delta.key_heads * args.delta.key_dim +
                                static_cast<int64_t>(args.delta.value_heads) * args.delta.value_dim,
      "conv.channels", "is not 2 * key_heads * key_dim + value_heads * value_dim");
  check.pointer("z", args.z);
  check.pointer("norm_weight", args.norm_weight);
  check.pointer("y", args.y);
  const bool plain = device.reference_numerics();
  const auto workers = static_cast<std::size_t>(device.options().threads);
  const std::size_t floats = work_floats(args.delta);
  const auto body = [args, floats, plain](Pool& pool, std::byte* scratch) noexcept {
    run_causal_conv(plain, args.conv, pool);
    const frt_gated_delta_args& delta = args.delta;
    pool.run(delta.sequences.count * delta.value_heads, [&](int64_t task, int worker) {
      const int64_t b = task / delta.value_heads;
      const auto head = static_cast<int32_t>(task % delta.value_heads);
      reference::gated_delta(
          delta, b, head,
          reinterpret_cast<float*>(scratch) + static_cast<std::size_t>(worker) * floats);
      const int64_t first = b * delta.sequences.rows;
      const int32_t length = active_length(delta.sequences, b);
      for (int64_t row = first; row < first + length; ++row) {
        const int64_t at = (row * delta.value_heads + head) * delta.value_dim;
        gated_rms_norm_row(plain, delta.value_dim, args.epsilon, delta.dtype,
                           element(delta.dtype, delta.o, at), delta.dtype,
                           element(delta.dtype, args.z, at), args.norm_weight,
                           element(delta.dtype, args.y, at));
      }
    });
  };
  return make_node(body, workers * floats * sizeof(float));
}

}  // namespace

void register_gated_delta(KernelList& list) {
  list.add<frt_gated_delta_args>(FRT_OP_GATED_DELTA, kFloatTypes, 0, prepare_gated_delta);
  list.add<frt_gated_delta_block_args>(FRT_OP_GATED_DELTA_BLOCK, kFloatTypes, 0,
                                       prepare_gated_delta_block);
}

}  // namespace frt::cpu
