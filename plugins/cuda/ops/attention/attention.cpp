// SPDX-License-Identifier: Apache-2.0
// frt.attention_append/1, frt.attention/1 and frt.attention_block/1: the tables of their
// variants (attention.hpp).
//
//   split    few rows per sequence (decode, verify): the positions are split over blocks
//   tiles    many rows (prefill): tiles of queries against tiles of positions, on tensor cores
//   general  everything else (f32 activations, f32 cache, any head size): simple and slower
#include "attention.hpp"

#include <frt/ops/checks/attention.hpp>

#include "../registry.hpp"

namespace frt::cuda {
namespace {

bool aligned(const void* pointer, int64_t stride_bytes = 0, int64_t other_bytes = 0) {
  return (reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(stride_bytes) |
          static_cast<uintptr_t>(other_bytes)) %
             16 ==
         0;
}

bool same_pages(const frt_page_table& a, const frt_page_table& b) {
  return a.table == b.table &&
         (!a.table || (a.stride == b.stride && a.rows == b.rows && a.slot_pages == b.slot_pages));
}

bool same_sequences(const frt_sequences& a, const frt_sequences& b) {
  return a.count == b.count && a.rows == b.rows && a.slot == b.slot && a.position == b.position &&
         a.length == b.length;
}

// Whether both halves of a block speak of the same rows, heads and cache, so that one launch can
// do both.
bool same_subject(const frt_attention_append_args& a, const frt_attention_args& b) {
  return same_sequences(a.sequences, b.sequences) && a.dtype == b.dtype &&
         a.kv_dtype == b.kv_dtype && a.heads == b.heads && a.kv_heads == b.kv_heads &&
         a.head_dim == b.head_dim && a.max_rows == b.max_rows && a.keys == b.keys &&
         a.values == b.values && same_pages(a.pages, b.pages);
}

// ---- variants ----------------------------------------------------------------------------------

constexpr Variant<AppendCall> kAppendVariants[] = {
    {"rows", {}, [](Device&, AppendCall& args) { return fast_append(args); }, launch_append_rows},
    {"general", {}, nullptr, launch_append_general},
};
constexpr Variants<AppendCall> kAppendTable{FRT_OP_ATTENTION_APPEND, kAppendVariants};

bool supports_split(Device&, AttentionCall& args) {
  return args.sequences.rows <= kSplitRows && fast_attention(args);
}
bool supports_tiles(Device&, AttentionCall& args) {
  return fast_attention(args);
}
bool supports_wgmma_tiles(Device&, AttentionCall& args) {
  return args.head_dim == kWgmmaTilesDim && fast_attention(args);
}
constexpr Variant<AttentionCall> kAttentionVariants[] = {
    {"split",
     {},
     supports_split,
     [](Stream& stream, AttentionCall& args) { launch_split(stream, args, nullptr); }},
    {"tiles-wgmma",
     {feature::kWgmma, kWgmmaTilesSharedBytes},
     supports_wgmma_tiles,
     launch_wgmma_tiles},
    {"tiles", {}, supports_tiles, launch_tiles},
    {"general", {}, nullptr, launch_general},
};
constexpr Variants<AttentionCall> kAttentionTable{FRT_OP_ATTENTION, kAttentionVariants};

bool supports_append_and_split(Device&, AttentionBlockCall& call) {
  return call.append.sequences.rows <= kSplitRows && same_subject(call.append, call.attention) &&
         fast_append(call.append) && fast_attention(call.attention);
}
void launch_append_and_split(Stream& stream, AttentionBlockCall& call) {
  launch_split(stream, call.attention, &call.append);
}
void launch_both(Stream& stream, AttentionBlockCall& call) {
  run_variant<AppendCall>(stream, kAppendTable, call.append);
  run_variant<AttentionCall>(stream, kAttentionTable, call.attention);
}
constexpr Variant<AttentionBlockCall> kBlockVariants[] = {
    {"append-split", {}, supports_append_and_split, launch_append_and_split},
    {"composed", {}, nullptr, launch_both},
};
constexpr Variants<AttentionBlockCall> kBlockTable{FRT_OP_ATTENTION_BLOCK, kBlockVariants};

// ---- operators ---------------------------------------------------------------------------------

void attention_append(Stream& stream, const frt_attention_append_args& args) {
  check_attention_append(Checks(FRT_OP_ATTENTION_APPEND), args);
  const auto call = with_row_stride(args);
  run_variant(stream, kAppendTable, call);
}

void attention(Stream& stream, const frt_attention_args& args) {
  check_attention(Checks(FRT_OP_ATTENTION), args);
  const auto call = with_row_stride(args);
  run_variant(stream, kAttentionTable, call);
}

void attention_block(Stream& stream, const frt_attention_block_args& args) {
  check_attention_block(Checks(FRT_OP_ATTENTION_BLOCK), args);
  AttentionBlockCall call{with_row_stride(args.append), with_row_stride(args.attention)};
  run_variant(stream, kBlockTable, call);
}

}  // namespace

bool fast_attention(const frt_attention_args& args) noexcept {
  const bool size = args.head_dim == 64 || args.head_dim == 128 || args.head_dim == 256;
  return size && args.scale > 0 && args.dtype == FRT_DTYPE_BF16 && args.kv_dtype != FRT_DTYPE_F32 &&
         aligned(args.q) && aligned(args.y) && aligned(args.keys, args.pages.stride) &&
         aligned(args.values) &&
         (!args.gate || aligned(args.gate, args.gate_row_stride * 2, args.gate_head_stride * 2));
}

bool fast_append(const frt_attention_append_args& args) noexcept {
  return args.dtype == FRT_DTYPE_BF16 && args.head_dim <= 256 && args.head_dim % 8 == 0 &&
         args.rotary_dim % 16 == 0 &&
         aligned(args.q, args.q_row_stride * 2, args.q_head_stride * 2) && aligned(args.k) &&
         aligned(args.v) && aligned(args.q_norm) && aligned(args.k_norm) && aligned(args.q_out) &&
         aligned(args.keys, args.pages.stride) && aligned(args.values);
}

void register_attention(KernelList& list) {
  list.add<frt_attention_append_args>(FRT_OP_ATTENTION_APPEND, kFloatTypes, {}, attention_append);
  list.add<frt_attention_args>(FRT_OP_ATTENTION, kFloatTypes, {}, attention);
  list.add<frt_attention_block_args>(FRT_OP_ATTENTION_BLOCK, kFloatTypes, {}, attention_block);
  list.add_variants(kAppendTable);
  list.add_variants(kAttentionTable);
  list.add_variants(kBlockTable);
}

}  // namespace frt::cuda
