// SPDX-License-Identifier: Apache-2.0
#include "activations.hpp"

namespace frt::qwen36 {

std::uint64_t Activations::lay_out(std::byte* base, const lm::Config&,
                                   const lm::Precision& precision, const lm::StepSizes& sizes) {
  const Config& c = config_;
  const std::int64_t rows = sizes.rows();
  const frt_dtype type = precision.activation;
  Cursor cursor(base);
  lay_out_rows(cursor, c, precision, rows);
  if (with_mtp_) {
    mtp_ids = cursor.take<std::int32_t>(FRT_DTYPE_I32, rows);
    mtp_position = cursor.take<std::int32_t>(FRT_DTYPE_I32, sizes.max_batch);
    mtp_length = cursor.take<std::int32_t>(FRT_DTYPE_I32, sizes.max_batch);
    mtp_embedded = cursor.take(type, rows * c.hidden);
    mtp_trunk = cursor.take(type, rows * c.hidden);
    mtp_pair = cursor.take(type, rows * 2 * c.hidden);
    mtp_residual = cursor.take(precision.residual, rows * c.hidden);
    mtp_hidden = cursor.take(type, rows * c.hidden);
    lay_out_drafts(cursor, sizes.max_batch);
    kept.assign(c.layers.size(), {});
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (c.layers[i] != LayerKind::kDelta) continue;
      kept[i].qkv = cursor.take(type, lm::kVerifyRows * c.conv_channels());
      kept[i].a = cursor.take(type, lm::kVerifyRows * c.value_heads);
      kept[i].b = cursor.take(type, lm::kVerifyRows * c.value_heads);
    }
  }
  const std::uint64_t shared = cursor.mark();

  qkv = cursor.take(type, rows * c.conv_channels());
  convolved = cursor.take(type, rows * c.conv_channels());
  z = cursor.take(type, rows * c.value_width());
  a = cursor.take(type, rows * c.value_heads);
  b = cursor.take(type, rows * c.value_heads);
  o = cursor.take(type, rows * c.value_width());
  gated = cursor.take(type, rows * c.value_width());

  cursor.rewind(shared);
  lay_out_attention(cursor, c, type, rows);
  cursor.rewind(shared);
  lay_out_feed_forward(cursor, c, type, rows);
  return cursor.bytes();
}

}  // namespace frt::qwen36
