// SPDX-License-Identifier: Apache-2.0
// frt.attention_append/1, frt.attention/1 and frt.attention_block/1.
#include <frt/ops/attention.h>

#include <algorithm>

#include "../device.hpp"
#include "checks.hpp"
#include "numbers.hpp"
#include "reference.hpp"
#include "registry.hpp"

namespace frt::cpu {
namespace {

void check_append(const Checks& check, const frt_attention_append_args& args) {
  check.dtype("dtype", args.dtype);
  check.dtype("kv_dtype", args.kv_dtype, {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3});
  check.sequences(args.sequences);
  check.positive("heads", args.heads);
  check.positive("kv_heads", args.kv_heads);
  check.require(args.heads % args.kv_heads == 0, "heads", "is not a multiple of kv_heads");
  check.positive("head_dim", args.head_dim);
  check.range("rotary_dim", args.rotary_dim, 0, args.head_dim);
  check.require(args.rotary_dim % 2 == 0, "rotary_dim", "is odd");
  check.pointer("q", args.q);
  check.pointer("k", args.k);
  check.pointer("v", args.v);
  if (args.rotary_dim > 0) check.pointer("inv_freq", args.inv_freq);
  if (args.kv_dtype == FRT_DTYPE_F8_E4M3) {
    check.require(args.k_scale > 0, "k_scale", "is not more than 0");
    check.require(args.v_scale > 0, "v_scale", "is not more than 0");
  }
  check.positive("max_rows", args.max_rows);
  check.pointer("keys", args.keys);
  check.pointer("values", args.values);
  check.pointer("q_out", args.q_out);
}

void check_attention(const Checks& check, const frt_attention_args& args) {
  check.dtype("dtype", args.dtype);
  check.dtype("kv_dtype", args.kv_dtype, {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3});
  check.sequences(args.sequences);
  check.positive("heads", args.heads);
  check.positive("kv_heads", args.kv_heads);
  check.require(args.heads % args.kv_heads == 0, "heads", "is not a multiple of kv_heads");
  check.positive("head_dim", args.head_dim);
  check.positive("max_rows", args.max_rows);
  check.pointer("q", args.q);
  check.pointer("keys", args.keys);
  check.pointer("values", args.values);
  if (args.kv_dtype == FRT_DTYPE_F8_E4M3) {
    check.require(args.k_scale > 0, "k_scale", "is not more than 0");
    check.require(args.v_scale > 0, "v_scale", "is not more than 0");
  }
  check.pointer("y", args.y);
}

void run_append(const frt_attention_append_args& args, Pool& pool, std::byte* scratch) noexcept {
  const int64_t floats = args.rotary_dim + args.head_dim;
  pool.run(static_cast<int64_t>(args.sequences.count) * args.sequences.rows, [&](int64_t task,
                                                                                 int worker) {
    const int64_t b = task / args.sequences.rows;
    const auto q = static_cast<int32_t>(task % args.sequences.rows);
    if (q >= active_length(args.sequences, b)) return;
    reference::attention_append(args, b, q, reinterpret_cast<float*>(scratch) + worker * floats);
  });
}

void run_attention(const frt_attention_args& args, Pool& pool, std::byte* scratch) noexcept {
  const int64_t floats = static_cast<int64_t>(args.max_rows) + args.head_dim;
  const int64_t rows = args.sequences.rows;
  pool.run(args.sequences.count * rows * args.heads, [&](int64_t task, int worker) {
    const auto head = static_cast<int32_t>(task % args.heads);
    const int64_t b = task / args.heads / rows;
    const auto q = static_cast<int32_t>(task / args.heads % rows);
    if (q >= active_length(args.sequences, b)) return;
    reference::attention(args, b, q, head, reinterpret_cast<float*>(scratch) + worker * floats);
  });
}

std::size_t append_scratch(Device& device, const frt_attention_append_args& args) {
  return static_cast<std::size_t>(device.options().threads) *
         (static_cast<std::size_t>(args.rotary_dim) + static_cast<std::size_t>(args.head_dim)) *
         sizeof(float);
}

std::size_t attention_scratch(Device& device, const frt_attention_args& args) {
  return static_cast<std::size_t>(device.options().threads) *
         (static_cast<std::size_t>(args.max_rows) + static_cast<std::size_t>(args.head_dim)) *
         sizeof(float);
}

std::unique_ptr<Node> prepare_append(Device& device, const frt_attention_append_args& args) {
  check_append(Checks(FRT_OP_ATTENTION_APPEND), args);
  return make_node(
      [args](Pool& pool, std::byte* scratch) noexcept { run_append(args, pool, scratch); },
      append_scratch(device, args));
}

std::unique_ptr<Node> prepare_attention(Device& device, const frt_attention_args& args) {
  check_attention(Checks(FRT_OP_ATTENTION), args);
  return make_node(
      [args](Pool& pool, std::byte* scratch) noexcept { run_attention(args, pool, scratch); },
      attention_scratch(device, args));
}

std::unique_ptr<Node> prepare_block(Device& device, const frt_attention_block_args& args) {
  const Checks check(FRT_OP_ATTENTION_BLOCK);
  check_append(check, args.append);
  check_attention(check, args.attention);
  check.require(args.append.q_out == args.attention.q, "attention.q", "is not append.q_out");
  return make_node(
      [args](Pool& pool, std::byte* scratch) noexcept {
        run_append(args.append, pool, scratch);
        run_attention(args.attention, pool, scratch);
      },
      std::max(append_scratch(device, args.append), attention_scratch(device, args.attention)));
}

}  // namespace

void register_attention(KernelList& list) {
  list.add<frt_attention_append_args>(FRT_OP_ATTENTION_APPEND, kFloatTypes, 0, prepare_append);
  list.add<frt_attention_args>(FRT_OP_ATTENTION, kFloatTypes, 0, prepare_attention);
  list.add<frt_attention_block_args>(FRT_OP_ATTENTION_BLOCK, kFloatTypes, 0, prepare_block);
}

}  // namespace frt::cpu
