// SPDX-License-Identifier: Apache-2.0
// The steps:
//
//   prefill  tokens -> trunk -> (draft head's rows) -> last row -> head -> sample
//   decode   tokens (or pending) -> trunk -> (draft head's rows) -> head -> sample
//   verify   candidates -> trunk, recurrent state kept -> head -> sample each row -> accept
//            -> (recurrent state, draft head's rows: of what was accepted)
//
// 2026-11-27, how a verify step leaves the state of what it accepted. Keys and values of rejected
// rows lie behind the boundary and are written again. Recurrent state cannot be cut back. Here the
// step keeps it, and the rows that were accepted are fed to it once more from what the step
// computed of them (u, a, b), by one kernel for all layers: 34 us of a round of 14.4 ms, read and
// write of 151 MB each beside the read of the check (27B, at 4.4 TB/s), and 16 MB of memory in all.
// The state is always that of the boundary, so capsules, forks, prefills and plain steps know
// nothing of drafts. Rejected: a bank of state for each row (450 MB more a slot and 600 MB written
// a round, and every reader must know the bank); the commit at the start of the next round (34 us
// less, but a slot then is state and rows that wait, in capsules too).
#include <frt/lm/recipe.hpp>

#include <frt/role/lm.h>

#include <string>
#include <vector>

namespace frt::lm {

std::vector<std::string> common_operators(const Config& config) {
  return {FRT_OP_EMBED,     FRT_OP_SELECT_TOKENS,
          FRT_OP_LAST_ROWS, FRT_OP_ADD_RMS_NORM,
          FRT_OP_LINEAR,    FRT_OP_NORM_LINEARS,
          FRT_OP_ARGMAX,    FRT_OP_COUNT_TOKENS,
          FRT_OP_SAMPLE,    config.mixture() ? FRT_OP_MOE_BLOCK : FRT_OP_NORM_GATE_UP};
}

Recipe::Batch Recipe::prefill_batch(std::int32_t rows) const {
  Batch batch = token_batch(1);
  batch.sequences.rows = rows;
  batch.row_count = batch.sequences.length;
  return batch;
}

Recipe::Batch Recipe::token_batch(std::int32_t count) const {
  Batch batch;
  batch.sequences.count = count;
  batch.sequences.rows = 1;
  batch.sequences.slot = ports_.slot_ids.pointer<std::int32_t>();
  batch.sequences.position = ports_.positions.pointer<std::int32_t>();
  batch.sequences.length = ports_.lengths.pointer<std::int32_t>();
  return batch;
}

void Recipe::prefill(const Recorder& recorder, std::int32_t rows, const Tap* tap) const {
  const Batch batch = prefill_batch(rows);
  select(recorder, batch, ports_.tokens);
  embed(recorder, batch);
  count_tokens(recorder, batch, false);
  trunk(recorder, batch, tap);
  follow(recorder, batch, tap);

  frt_last_rows_args last{};
  last.dtype = precision_.activation;
  last.sequences = batch.sequences;
  last.width = i32(config_.hidden);
  last.x = act_.hidden;
  last.x_stride = config_.hidden;
  last.y = act_.last;
  last.y_stride = config_.hidden;
  ops_.last_rows(recorder, last);
  head(recorder, weights_.head, act_.last, 1, ports_.logits.pointer<float>());
  sample(recorder, batch);
}

void Recipe::decode(const Recorder& recorder, std::int32_t batch_size) const {
  const Batch batch = token_batch(batch_size);
  select(recorder, batch, ports_.tokens);
  embed(recorder, batch);
  count_tokens(recorder, batch, true);
  trunk(recorder, batch, nullptr);
  follow(recorder, batch, nullptr);
  head(recorder, weights_.head, act_.hidden, batch_size, ports_.logits.pointer<float>());
  sample(recorder, batch);
}

void Recipe::verify(const Recorder& recorder, std::int32_t batch_size, std::int32_t rows) const {
  Batch batch = token_batch(batch_size);
  batch.sequences.rows = rows;
  batch.drafts = true;
  select(recorder, batch, ports_.candidates);
  embed(recorder, batch);
  trunk(recorder, batch, nullptr);
  head(recorder, weights_.head, act_.hidden, batch.rows(), ports_.logits.pointer<float>());
  sample(recorder, batch);
  accept(recorder, batch);

  batch.sequences.length = act_.committed;
  count_tokens(recorder, batch, true);
  commit(recorder, batch);
  follow(recorder, batch, nullptr);
}

void Recipe::select(const Recorder& recorder, const Batch& batch, const Buffer& ids) const {
  frt_select_tokens_args select{};
  select.sequences = batch.sequences;
  select.ids = ids.pointer<std::int32_t>();
  select.pending = state_.pending;
  select.pending_stride = state_.slot_stride;
  select.ids_out = act_.ids;
  ops_.select_tokens(recorder, select);
}

void Recipe::embed(const Recorder& recorder, const Batch& batch) const {
  frt_embed_args embed{};
  embed.y_dtype = precision_.residual;
  embed.rows = batch.rows();
  embed.row_count = batch.row_count;
  embed.ids = act_.ids;
  embed.table = weights_.embedding;
  embed.y = act_.residual;
  embed.y_stride = config_.hidden;
  ops_.embed(recorder, embed);
}

void Recipe::trunk(const Recorder& recorder, const Batch& batch, const Tap* tap) const {
  const frt_dtype type = precision_.activation;
  const void* delta = nullptr;  // output of the block before, not yet in the residual
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    mixer(recorder, batch, i, {act_.residual, delta, layer.input_norm});
    if (i > 0) {
      show(tap, "residual", i - 1, act_.residual, precision_.residual, batch, config_.hidden);
    }
    show(tap, "mixer", i, act_.mixer_out, type, batch, config_.hidden);
    feed_forward(recorder, batch, layer, {act_.residual, act_.mixer_out, layer.post_norm});
    show(tap, "ffn", i, act_.ffn_out, type, batch, config_.hidden);
    if (config_.mixture()) {
      show(tap, "router_ids", i, act_.expert_ids, FRT_DTYPE_I32, batch, config_.experts_per_token);
      show(tap, "router_weights", i, act_.expert_weights, FRT_DTYPE_F32, batch,
           config_.experts_per_token);
    }
    delta = act_.ffn_out;
  }
  norm(recorder, batch, {act_.residual, delta, weights_.norm}, act_.hidden);
  show(tap, "residual", weights_.layers.size() - 1, act_.residual, precision_.residual, batch,
       config_.hidden);
  show(tap, "hidden", 0, act_.hidden, type, batch, config_.hidden);
}

void Recipe::head(const Recorder& recorder, const frt_weight& weight, const void* hidden,
                  std::int32_t rows, float* logits) const {
  frt_linear_args args{};
  args.x_dtype = precision_.activation;
  args.y_dtype = FRT_DTYPE_F32;
  args.rows = rows;
  args.x = hidden;
  args.x_stride = config_.hidden;
  args.weight = weight;
  args.y = logits;
  args.y_stride = config_.vocabulary;
  ops_.linear(recorder, args);
}

void Recipe::count_tokens(const Recorder& recorder, const Batch& batch, bool generated) const {
  frt_count_tokens_args count{};
  count.generated = generated ? 1 : 0;
  count.sequences = batch.sequences;
  count.ids = act_.ids;
  count.vocabulary = i32(config_.vocabulary);
  count.counts = state_.counts;
  count.slot_stride = state_.slot_stride;
  if (!batch.drafts) count.restart = ports_.starts.pointer<std::uint32_t>();
  ops_.count_tokens(recorder, count);
}

void Recipe::sample(const Recorder& recorder, const Batch& batch) const {
  frt_sample_args args{};
  args.vocabulary = i32(config_.vocabulary);
  args.sequences = batch.sequences;
  args.logits = ports_.logits.pointer<float>();
  args.stride = config_.vocabulary;
  args.params = ports_.sampling.pointer<frt_sampling_params>();
  args.mask = ports_.mask.pointer<std::uint32_t>();
  args.mask_stride = ports_.mask_words;
  args.bias = ports_.bias.pointer<frt_logit_bias>();
  args.bias_stride = kBiasIds;
  args.counts = state_.counts;
  args.counts_stride = state_.slot_stride;
  if (batch.drafts) {
    args.fed = act_.ids;  // accept() writes what is pending
  } else {
    args.pending = state_.pending;
    args.pending_stride = state_.slot_stride;
  }
  args.ids = ports_.next_tokens.pointer<std::int32_t>();
  args.log_probabilities = ports_.log_probabilities.pointer<float>();
  ops_.sample(recorder, args);
}

void Recipe::accept(const Recorder& recorder, const Batch& batch) const {
  frt_accept_tokens_args args{};
  args.stop_count = kStopIds;
  args.sequences = batch.sequences;
  args.fed = act_.ids;
  args.drawn = ports_.next_tokens.pointer<std::int32_t>();
  args.stops = ports_.stops.pointer<std::int32_t>();
  args.accepted = ports_.accepted.pointer<std::int32_t>();
  args.committed = act_.committed;
  args.pending = state_.pending;
  args.pending_stride = state_.slot_stride;
  ops_.accept_tokens(recorder, args);
}

void Recipe::draft(const Recorder&, std::int32_t, std::int32_t) const {
  throw Error(FRT_ERR_UNSUPPORTED, "this architecture has no draft head");
}

void Recipe::norm(const Recorder& recorder, const Batch& batch, const Entry& entry, void* y) const {
  frt_add_rms_norm_args args{};
  args.residual_dtype = precision_.residual;
  args.dtype = precision_.activation;
  args.rows = batch.rows();
  args.width = i32(config_.hidden);
  args.epsilon = static_cast<float>(config_.epsilon);
  args.row_count = batch.row_count;
  args.residual = entry.residual;
  args.delta = entry.delta;
  args.weight = entry.norm;
  args.y = y;
  ops_.add_rms_norm(recorder, args);
}

void Recipe::norm_linears(const Recorder& recorder, const Batch& batch, const Entry& entry,
                          std::span<const frt_linear_part> parts) const {
  frt_norm_linears_args args{};
  args.residual_dtype = precision_.residual;
  args.dtype = precision_.activation;
  args.rows = batch.rows();
  args.part_count = i32(static_cast<std::int64_t>(parts.size()));
  args.epsilon = static_cast<float>(config_.epsilon);
  args.row_count = batch.row_count;
  args.residual = entry.residual;
  args.delta = entry.delta;
  args.norm_weight = entry.norm;
  args.x = act_.x;
  args.parts = parts.data();
  ops_.norm_linears(recorder, args);
}

void Recipe::linear(const Recorder& recorder, const Batch& batch, const void* x,
                    const frt_weight& weight, frt_dtype y_dtype, void* y) const {
  frt_linear_args args{};
  args.x_dtype = precision_.activation;
  args.y_dtype = y_dtype;
  args.rows = batch.rows();
  args.row_count = batch.row_count;
  args.x = x;
  args.x_stride = weight.cols;
  args.weight = weight;
  args.y = y;
  args.y_stride = weight.rows;
  ops_.linear(recorder, args);
}

void Recipe::biased(const Recorder& recorder, const Batch& batch, const void* x,
                    const frt_weight& weight, const float* bias, void* y) const {
  if (!bias) return linear(recorder, batch, x, weight, precision_.activation, y);
  frt_dense_args args{};
  args.x_dtype = precision_.activation;
  args.y_dtype = precision_.activation;
  args.rows = batch.rows();
  args.activation = FRT_ACTIVATION_NONE;
  args.row_count = batch.row_count;
  args.x = x;
  args.x_stride = weight.cols;
  args.weight = weight;
  args.bias = bias;
  args.y = y;
  args.y_stride = weight.rows;
  ops_.dense(recorder, args);
}

}  // namespace frt::lm
