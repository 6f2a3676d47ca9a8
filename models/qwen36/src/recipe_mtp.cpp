// SPDX-License-Identifier: Apache-2.0
// The draft head. Its row i takes the trunk's normed row i and token i + 1, at rotary position i:
//
//   x = fc [ norm(embed(token i+1)) | norm(hidden i) ];  one attention layer;  m = norm(x)
//   proposed token i + 2 = argmax(lm_head m);  the next row takes m in place of the trunk's row
//
// Row i can only be made when token i + 1 is there. So a trunk step over tokens p .. p+n-1 makes
// the rows p-1 .. p+n-2, the first from the row that the step before left in `hidden`; only keys
// and values are needed of them. A draft step makes the row after that from `draft.hidden`, which
// starts as `hidden` and then holds the head's own output.
#include <array>

#include "recipe.hpp"

namespace frt::qwen36 {

using lm::bytes_of;

std::vector<std::string> recipe_operators(const Config& config, bool with_mtp) {
  std::vector<std::string> needs = lm::common_operators(config);
  if (config.delta_layers() > 0) needs.push_back(FRT_OP_GATED_DELTA_BLOCK);
  if (config.delta_layers() > 0 && with_mtp) needs.push_back(FRT_OP_GATED_DELTA_COMMIT);
  if (config.attention_layers() > 0 || with_mtp) needs.push_back(FRT_OP_ATTENTION_BLOCK);
  if (with_mtp) {
    needs.insert(needs.end(), {FRT_OP_RMS_NORM, FRT_OP_ATTENTION_APPEND, FRT_OP_LAG_ROWS,
                               FRT_OP_STORE_ROWS, FRT_OP_ACCEPT_TOKENS, FRT_OP_CHAIN_TOKENS});
  }
  return needs;
}

Recipe::Batch Recipe::mtp_pairs(const Recorder& recorder, const Batch& batch,
                                const std::int32_t* ids, const void* rows,
                                const void* carry) const {
  frt_lag_rows_args lag{};
  lag.dtype = precision_.activation;
  lag.sequences = batch.sequences;
  lag.width = i32(config_.hidden);
  lag.ids = ids;
  lag.x = rows;
  lag.carry = carry;
  lag.slot_stride = state_.slot_stride;
  lag.ids_out = act_.mtp_ids;
  lag.y = act_.mtp_trunk;
  lag.position_out = act_.mtp_position;
  lag.length_out = act_.mtp_length;
  ops_.lag_rows(recorder, lag);

  Batch pairs = batch;
  pairs.sequences.position = act_.mtp_position;
  pairs.sequences.length = act_.mtp_length;
  if (batch.row_count) pairs.row_count = act_.mtp_length;
  return pairs;
}

void Recipe::mtp_input(const Recorder& recorder, const Batch& pairs) const {
  const frt_dtype type = precision_.activation;
  const std::int64_t hidden = config_.hidden;
  frt_embed_args embed{};
  embed.y_dtype = type;
  embed.rows = pairs.rows();
  embed.row_count = pairs.row_count;
  embed.ids = act_.mtp_ids;
  embed.table = weights_.embedding;
  embed.y = act_.mtp_embedded;
  embed.y_stride = hidden;
  ops_.embed(recorder, embed);

  const auto norm_part = [&](const void* x, const float* weight, void* y) {
    frt_rms_norm_args args{};
    args.x_dtype = type;
    args.y_dtype = type;
    args.rows = pairs.rows();
    args.width = i32(hidden);
    args.epsilon = static_cast<float>(config_.epsilon);
    args.row_count = pairs.row_count;
    args.x = x;
    args.x_stride = hidden;
    args.weight = weight;
    args.y = y;
    args.y_stride = 2 * hidden;
    ops_.rms_norm(recorder, args);
  };
  norm_part(act_.mtp_embedded, weights_.mtp->embedding_norm, act_.mtp_pair);
  norm_part(act_.mtp_trunk, weights_.mtp->hidden_norm,
            static_cast<std::byte*>(act_.mtp_pair) + bytes_of(type, hidden));
  linear(recorder, pairs, act_.mtp_pair, weights_.mtp->fc, precision_.residual, act_.mtp_residual);
}

void Recipe::mtp_layer(const Recorder& recorder, const Batch& pairs) const {
  const lm::LayerWeights& layer = weights_.mtp->layer;
  attention_mixer(recorder, pairs, layer.attention, state_.mtp,
                  {act_.mtp_residual, nullptr, layer.input_norm});
  feed_forward(recorder, pairs, layer, {act_.mtp_residual, act_.mixer_out, layer.post_norm});
  norm(recorder, pairs, {act_.mtp_residual, act_.ffn_out, weights_.mtp->norm}, act_.mtp_hidden);
}

// Keys and values alone. The append operator also rotates queries; the keys stand in for them.
void Recipe::mtp_append(const Recorder& recorder, const Batch& pairs) const {
  const lm::LayerWeights& layer = weights_.mtp->layer;
  const std::array<frt_linear_part, 2> parts = {
      {{layer.attention.key, act_.key, config_.kv_width()},
       {layer.attention.value, act_.value, config_.kv_width()}}};
  norm_linears(recorder, pairs, {act_.mtp_residual, nullptr, layer.input_norm}, parts);
  frt_attention_append_args append = append_args(pairs, layer.attention, state_.mtp);
  append.heads = append.kv_heads;
  append.q = append.k;
  append.q_row_stride = config_.kv_width();
  append.q_head_stride = config_.head_dim;
  append.q_norm = append.k_norm;
  ops_.attention_append(recorder, append);
}

void Recipe::store_rows(const Recorder& recorder, const Batch& batch, const void* rows,
                        void* target) const {
  frt_store_rows_args args{};
  args.dtype = precision_.activation;
  args.sequences = batch.sequences;
  args.width = i32(config_.hidden);
  args.x = rows;
  args.target = target;
  args.slot_stride = state_.slot_stride;
  ops_.store_rows(recorder, args);
}

void Recipe::follow(const Recorder& recorder, const Batch& batch, const Tap* tap) const {
  if (!weights_.mtp) return;
  const Batch pairs = mtp_pairs(recorder, batch, act_.ids, act_.hidden, state_.hidden);
  mtp_input(recorder, pairs);
  if (tap) {
    mtp_layer(recorder, pairs);
    show(tap, "mtp.hidden", 0, act_.mtp_hidden, precision_.activation, pairs, config_.hidden);
  } else {
    mtp_append(recorder, pairs);
  }
  store_rows(recorder, batch, act_.hidden, state_.hidden);
  store_rows(recorder, batch, act_.hidden, state_.draft_hidden);
}

void Recipe::draft(const Recorder& recorder, std::int32_t batch_size, std::int32_t drafts) const {
  Batch batch = token_batch(batch_size);
  const std::int32_t* ids = act_.ids;
  auto* proposed = ports_.next_tokens.pointer<std::int32_t>();
  // Column `column` of the candidates; draft_position becomes the position behind that of `batch`.
  const auto chain = [&](std::int32_t column) {
    frt_chain_tokens_args args{};
    args.column = column;
    args.sequences = batch.sequences;
    args.ids = ids;
    args.candidates = ports_.candidates.pointer<std::int32_t>();
    args.stride = drafts + 1;
    args.position_out = act_.draft_position;
    ops_.chain_tokens(recorder, args);
  };
  select(recorder, batch, ports_.tokens);
  chain(0);
  for (std::int32_t i = 0; i < drafts; ++i) {
    const Batch pairs = mtp_pairs(recorder, batch, ids, nullptr, state_.draft_hidden);
    mtp_input(recorder, pairs);
    mtp_layer(recorder, pairs);
    store_rows(recorder, pairs, act_.mtp_hidden, state_.draft_hidden);
    head(recorder, weights_.draft_head, act_.mtp_hidden, batch_size,
         ports_.logits.pointer<float>());

    frt_argmax_args best{};
    best.rows = batch_size;
    best.width = i32(weights_.draft_head.rows);
    best.logits = ports_.logits.pointer<float>();
    best.stride = config_.vocabulary;
    best.ids = proposed;
    ops_.argmax(recorder, best);
    ids = proposed;
    chain(i + 1);
    batch.sequences.position = act_.draft_position;
  }
}

}  // namespace frt::qwen36
