// SPDX-License-Identifier: Apache-2.0
// The layout is computed twice with the same code: once to learn the size, once with the address.
#include <frt/lm/activations.hpp>

#include <frt/role/lm.h>

#include <algorithm>

namespace frt::lm {

std::int64_t StepSizes::rows() const {
  return std::max(prefill_chunk, out_rows());
}

std::int64_t StepSizes::out_rows() const {
  return verify ? std::max(max_batch, kVerifyRows) : max_batch;
}

void* Activations::Cursor::take(frt_dtype dtype, std::int64_t elements) {
  const std::uint64_t at = offset_;
  offset_ += (bytes_of(dtype, elements) + 255) / 256 * 256;
  high_ = std::max(high_, offset_);
  return base_ ? base_ + at : nullptr;
}

void Activations::lay_out_rows(Cursor& cursor, const Config& c, const Precision& precision,
                               std::int64_t rows) {
  const frt_dtype type = precision.activation;
  ids = cursor.take<std::int32_t>(FRT_DTYPE_I32, rows);
  residual = cursor.take(precision.residual, rows * c.hidden);
  x = cursor.take(type, rows * c.hidden);
  mixer_out = cursor.take(type, rows * c.hidden);
  ffn_out = cursor.take(type, rows * c.hidden);
  hidden = cursor.take(type, rows * c.hidden);
  last = cursor.take(type, c.hidden);
}

void Activations::lay_out_attention(Cursor& cursor, const Config& c, frt_dtype type,
                                    std::int64_t rows) {
  query = cursor.take(type, rows * c.query_width());
  key = cursor.take(type, rows * c.kv_width());
  value = cursor.take(type, rows * c.kv_width());
  rotated = cursor.take(type, rows * c.attention_width());
  attended = cursor.take(type, rows * c.attention_width());
}

void Activations::lay_out_feed_forward(Cursor& cursor, const Config& c, frt_dtype type,
                                       std::int64_t rows) {
  if (c.mixture()) {
    router_logits = cursor.take<float>(FRT_DTYPE_F32, rows * c.experts);
    expert_ids = cursor.take<std::int32_t>(FRT_DTYPE_I32, rows * c.experts_per_token);
    expert_weights = cursor.take<float>(FRT_DTYPE_F32, rows * c.experts_per_token);
    shared_hidden = cursor.take(type, rows * 2 * c.shared_width);
    shared_y = cursor.take(type, rows * c.hidden);
    shared_scale = cursor.take<float>(FRT_DTYPE_F32, rows);
  } else {
    gate = cursor.take(type, rows * c.intermediate);
    inner = cursor.take(type, rows * c.intermediate);
  }
}

void Activations::lay_out_drafts(Cursor& cursor, std::int64_t max_batch) {
  committed = cursor.take<std::int32_t>(FRT_DTYPE_I32, max_batch);
  draft_position = cursor.take<std::int32_t>(FRT_DTYPE_I32, max_batch);
}

std::uint64_t Activations::lay_out(std::byte* base, const Config& config,
                                   const Precision& precision, const StepSizes& sizes) {
  const std::int64_t rows = sizes.rows();
  Cursor cursor(base);
  lay_out_rows(cursor, config, precision, rows);
  const std::uint64_t shared = cursor.mark();
  lay_out_attention(cursor, config, precision.activation, rows);
  cursor.rewind(shared);
  lay_out_feed_forward(cursor, config, precision.activation, rows);
  return cursor.bytes();
}

Ports make_ports(const Context& context, const Config& config, const StepSizes& sizes) {
  const std::int64_t max_batch = sizes.max_batch;
  const std::int64_t rows = sizes.out_rows();
  const auto alloc = [&](frt_dtype dtype, std::int64_t elements, const char* name) {
    return context.alloc(FRT_SPACE_DEVICE, bytes_of(dtype, elements), name);
  };
  Ports ports;
  ports.mask_words = (config.vocabulary + 31) / 32;
  ports.tokens = alloc(FRT_DTYPE_I32, std::max(sizes.prefill_chunk, max_batch), "tokens");
  ports.slot_ids = alloc(FRT_DTYPE_I32, max_batch, "slots");
  ports.positions = alloc(FRT_DTYPE_I32, max_batch, "positions");
  ports.lengths = alloc(FRT_DTYPE_I32, max_batch, "lengths");
  ports.starts = alloc(FRT_DTYPE_U32, max_batch, "starts");
  ports.sampling = context.alloc(
      FRT_SPACE_DEVICE, static_cast<std::uint64_t>(max_batch) * sizeof(frt_sampling_params),
      "sampling");
  ports.mask = alloc(FRT_DTYPE_U32, rows * ports.mask_words, "mask");
  ports.bias = context.alloc(
      FRT_SPACE_DEVICE, static_cast<std::uint64_t>(max_batch * kBiasIds) * sizeof(frt_logit_bias),
      "bias");
  ports.next_tokens = alloc(FRT_DTYPE_I32, rows, "next_tokens");
  ports.log_probabilities = alloc(FRT_DTYPE_F32, rows, "log_probabilities");
  ports.logits = alloc(FRT_DTYPE_F32, rows * config.vocabulary, "logits");
  if (sizes.verify) {
    ports.candidates = alloc(FRT_DTYPE_I32, kVerifyRows, "candidates");
    ports.stops = alloc(FRT_DTYPE_I32, max_batch * kStopIds, "stops");
    ports.accepted = alloc(FRT_DTYPE_I32, max_batch, "accepted");
  }
  return ports;
}

std::uint64_t port_bytes(const Config& config, const StepSizes& sizes) {
  const std::int64_t max_batch = sizes.max_batch;
  const std::int64_t drafts = sizes.verify ? kVerifyRows + max_batch * (kStopIds + 1) : 0;
  const std::int64_t mask_words = (config.vocabulary + 31) / 32;
  return bytes_of(FRT_DTYPE_I32, std::max(sizes.prefill_chunk, max_batch)) +
         bytes_of(FRT_DTYPE_I32, max_batch * 4 + drafts) +
         bytes_of(FRT_DTYPE_I32, sizes.out_rows() * (2 + mask_words + config.vocabulary)) +
         static_cast<std::uint64_t>(max_batch) *
             (sizeof(frt_sampling_params) + std::uint64_t{kBiasIds} * sizeof(frt_logit_bias));
}

void place_activations(const Context& context, const Config& config, const Precision& precision,
                       const StepSizes& sizes, Activations& activations) {
  const std::uint64_t size = activations.lay_out(nullptr, config, precision, sizes);
  activations.memory = context.alloc(FRT_SPACE_DEVICE, size, "activations");
  activations.lay_out(activations.memory.pointer<std::byte>(), config, precision, sizes);
}

}  // namespace frt::lm
