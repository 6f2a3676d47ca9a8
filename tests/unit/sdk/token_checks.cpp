// SPDX-License-Identifier: Apache-2.0
// From logits to tokens, and what drafts need.
#include "trial.hpp"

namespace frt::test {

void try_argmax() {
  Memory memory;
  frt_argmax_args args{};
  args.rows = 3;
  args.width = 8;
  args.row_count = memory;
  args.logits = memory;
  args.stride = 8;
  args.ids = memory;
  Trial<frt_argmax_args> t(FRT_OP_ARGMAX, check_argmax, args);
  t.size(AT(rows));
  t.size(AT(width));
  t.optional(AT(row_count));
  t.memory(AT(logits));
  t.stride(AT(stride), 8, "logits");
  t.memory(AT(ids));
}

void try_count_tokens() {
  Memory memory;
  frt_count_tokens_args args{};
  args.generated = 1;
  args.sequences = sequences(memory, 2, 3);
  args.ids = memory;
  args.vocabulary = 10;
  args.counts = memory;
  args.slot_stride = 40;
  args.restart = memory;
  Trial<frt_count_tokens_args> t(FRT_OP_COUNT_TOKENS, check_count_tokens, args);
  t.flag(AT(generated));
  t.sequences(AT(sequences));
  t.memory(AT(ids));
  t.size(AT(vocabulary));
  t.memory(AT(counts), 4);
  t.slot_stride(AT(slot_stride), 40, 4);
  t.optional(AT(restart));
}

void try_sample() {
  Memory memory;
  frt_sample_args args{};
  args.vocabulary = 40;
  args.sequences = sequences(memory, 2, 3);
  args.logits = memory;
  args.stride = 40;
  args.params = memory;
  args.mask = memory;
  args.mask_stride = 2;
  args.counts = memory;
  args.counts_stride = 160;
  args.pending = memory;
  args.pending_stride = 4;
  args.ids = memory;
  args.log_probabilities = memory;
  args.bias = memory;
  args.bias_stride = 5;
  Trial<frt_sample_args> t(FRT_OP_SAMPLE, check_sample, args);
  t.size(AT(vocabulary));
  t.sequences(AT(sequences));
  t.memory(AT(logits));
  t.stride(AT(stride), 40, "logits");
  t.memory(AT(params));
  t.optional(AT(mask));
  t.stride(AT(mask_stride), 2, "mask");
  t.optional(AT(counts), 4);
  t.slot_stride(AT(counts_stride), 160, 4);
  t.optional(AT(pending), 4);
  t.slot_stride(AT(pending_stride), 4, 4);
  t.memory(AT(ids));
  t.optional(AT(log_probabilities));
  t.optional(AT(bias));
  t.stride(AT(bias_stride), 1, "bias");
  int32_t* const fed = memory;
  t.refuse_as(AT(fed), fed, "pending is given with fed; accept_tokens writes it");
  t.args().pending = nullptr;
  t.args().fed = fed;
  t.optional(AT(fed));
  // What is not there has no stride.
  t.accept(AT(pending_stride), 0);
  t.args().mask = nullptr;
  t.accept(AT(mask_stride), 0);
  t.args().counts = nullptr;
  t.accept(AT(counts_stride), 0);
  t.args().bias = nullptr;
  t.accept(AT(bias_stride), 0);
  t.args().vocabulary = INT32_MAX;
  t.args().mask = memory;
  t.args().stride = INT32_MAX;
  t.refuse(AT(mask_stride), 2, "is 2, expected at least 67108864");
}

void try_accept_tokens() {
  Memory memory;
  frt_accept_tokens_args args{};
  args.stop_count = 2;
  args.sequences = sequences(memory, 2, 3);
  args.fed = memory;
  args.drawn = memory;
  args.stops = memory;
  args.accepted = memory;
  args.committed = memory;
  args.pending = memory;
  args.pending_stride = 4;
  Trial<frt_accept_tokens_args> t(FRT_OP_ACCEPT_TOKENS, check_accept_tokens, args);
  t.size(AT(stop_count), 0);
  t.sequences(AT(sequences));
  t.memory(AT(fed));
  t.memory(AT(drawn));
  t.memory(AT(stops));
  t.memory(AT(accepted));
  t.memory(AT(committed));
  t.memory(AT(pending), 4);
  t.slot_stride(AT(pending_stride), 4, 4);
  t.args().stop_count = 0;
  t.accept(AT(stops), nullptr);
}

void try_chain_tokens() {
  Memory memory;
  frt_chain_tokens_args args{};
  args.column = 1;
  args.sequences = sequences(memory, 2, 1);
  args.ids = memory;
  args.candidates = memory;
  args.stride = 4;
  args.position_out = memory;
  Trial<frt_chain_tokens_args> t(FRT_OP_CHAIN_TOKENS, check_chain_tokens, args);
  t.range(AT(column), 0, 3);
  t.sequences(AT(sequences));
  t.equal(AT(sequences.rows), 1);
  t.memory(AT(ids));
  t.memory(AT(candidates));
  t.refuse(AT(stride), 0, "is 0, expected more than 0");
  t.refuse_as(AT(stride), INT64_MAX, "candidates has 2^61 bytes or more");
  t.memory(AT(position_out));
}

}  // namespace frt::test
