// SPDX-License-Identifier: Apache-2.0
// The chunked delta rule: which arguments it supports, its scratch memory, its launches.
#include "chunk.cuh"

#include "../../kernel_list.hpp"
#include "causal_conv.cuh"

namespace frt::cuda {
namespace {

constexpr Variant<ScanCall> kScanVariants[] = {
    {"wgmma",
     {feature::kWgmma | feature::kBulkCopies, kWgmmaScanSharedBytes},
     nullptr,
     launch_wgmma_scan},
    {"three-stages", {0, kScanStages* kScanStageBytes}, nullptr, launch_scan_stages},
    {"one-stage", {}, nullptr, launch_scan},
};
constexpr Variants<ScanCall> kScanTable{"gated delta scan", kScanVariants};

}  // namespace

void register_delta_chunk(KernelList& list) {
  list.add_variants(kScanTable);
}

bool supports_delta_chunk(Device&, DeltaCall& work) {
  const frt_gated_delta_args& delta = work.delta;
  if (delta.dtype != FRT_DTYPE_BF16 || delta.key_dim != kChunkDim || delta.value_dim != kChunkDim ||
      delta.chunk != kChunk) {
    return false;
  }
  // Few rows give the bits of one at a time.
  if (delta.sequences.rows <= FRT_DELTA_KEEP_ROWS) return false;
  if (delta.sequences.count > 65535 || delta.value_heads > 65535) return false;
  if (!aligned(delta.c, 0, 16) || !aligned(delta.o, 0, 16) ||
      !aligned(delta.state, delta.slot_stride, 4)) {
    return false;
  }
  if (!work.block) return true;
  const frt_causal_conv_args& conv = work.block->conv;
  return aligned(conv.u, 0, 16) && aligned(conv.window, conv.slot_stride, 16) &&
         aligned(conv.conv_weight, 0, 16);
}

void launch_delta_chunk(Stream& stream, DeltaCall& work) {
  const frt_gated_delta_args& delta = work.delta;
  ChunkRecords records{};
  records.chunks = static_cast<int>(ceil_div(delta.sequences.rows, kChunk));
  const int64_t all = static_cast<int64_t>(delta.sequences.count) * records.chunks;
  const int64_t key_bytes = all * delta.key_heads * kKeyBytes;
  const int64_t value_bytes = all * delta.value_heads * kValueBytes;
  records.keys =
      static_cast<char*>(stream.scratch(static_cast<std::size_t>(key_bytes + value_bytes)));
  records.values = records.keys + key_bytes;

  // The first pass convolves up to four taps.
  const frt_causal_conv_args* conv = work.block ? &work.block->conv : nullptr;
  if (conv && conv->width > 4) {
    launch_causal_conv(stream, *conv);
    conv = nullptr;
  }
  launch_delta_prepare(stream, delta, conv, records);
  const ScanCall scan{delta, records};
  run_variant(stream, kScanTable, scan);
  if (work.block) launch_gated_norm(stream, *work.block);
}

}  // namespace frt::cuda
