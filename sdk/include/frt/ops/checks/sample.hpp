// SPDX-License-Identifier: Apache-2.0
// frt/ops/checks/sample.hpp - the checks of frt/ops/sample.h. Header-only.  [setup]
#pragma once

#include <frt/ops/sample.h>
#include <frt/checks.hpp>

#include <cstdint>

namespace frt {

inline void check_argmax(const Checks& check, const frt_argmax_args& args) {
  check.positive("rows", args.rows);
  check.positive("width", args.width);
  check.array_or_null("row_count", args.row_count, {1});
  check.matrix("logits", args.logits, args.rows, args.width, "stride", args.stride);
  check.array("ids", args.ids, {args.rows});
}

inline void check_count_tokens(const Checks& check, const frt_count_tokens_args& args) {
  check.range("generated", args.generated, 0, 1);
  check.sequences(args.sequences);
  check.positive("vocabulary", args.vocabulary);
  check.array("ids", args.ids, {args.sequences.count, args.sequences.rows});
  check.slots("counts", args.counts, FRT_DTYPE_U32, {args.vocabulary}, "slot_stride",
              args.slot_stride);
  check.array_or_null("restart", args.restart, {args.sequences.count});
}

inline void check_sample(const Checks& check, const frt_sample_args& args) {
  check.positive("vocabulary", args.vocabulary);
  check.sequences(args.sequences);
  const int64_t count = args.sequences.count;
  const int64_t drawn = args.fed ? count * args.sequences.rows : count;
  check.matrix("logits", args.logits, drawn, args.vocabulary, "stride", args.stride);
  check.array("params", args.params, {count});
  if (args.mask) {
    check.matrix("mask", args.mask, drawn, (int64_t{args.vocabulary} + 31) / 32, "mask_stride",
                 args.mask_stride);
  }
  if (args.counts) {
    check.slots("counts", args.counts, FRT_DTYPE_U32, {args.vocabulary}, "counts_stride",
                args.counts_stride);
  }
  check.require(!args.fed || !args.pending, "pending",
                "is given with fed; accept_tokens writes it");
  if (args.pending) {
    check.slots("pending", args.pending, FRT_DTYPE_I32, {1}, "pending_stride", args.pending_stride);
  }
  check.array("ids", args.ids, {drawn});
  check.array_or_null("log_probabilities", args.log_probabilities, {drawn});
  check.array_or_null("fed", args.fed, {drawn});
  if (args.bias) check.matrix("bias", args.bias, count, 1, "bias_stride", args.bias_stride);
}

inline void check_accept_tokens(const Checks& check, const frt_accept_tokens_args& args) {
  check.sequences(args.sequences);
  check.at_least("stop_count", args.stop_count, 0);
  check.array("fed", args.fed, {args.sequences.count, args.sequences.rows});
  check.array("drawn", args.drawn, {args.sequences.count, args.sequences.rows});
  if (args.stop_count > 0) {
    check.array("stops", args.stops, {args.sequences.count, args.stop_count});
  }
  check.array("accepted", args.accepted, {args.sequences.count});
  check.array("committed", args.committed, {args.sequences.count});
  check.slots("pending", args.pending, FRT_DTYPE_I32, {1}, "pending_stride", args.pending_stride);
}

inline void check_chain_tokens(const Checks& check, const frt_chain_tokens_args& args) {
  check.sequences(args.sequences);
  check.equal("sequences.rows", args.sequences.rows, 1);
  check.positive("stride", args.stride);
  check.range("column", args.column, 0, args.stride - 1);
  check.array("ids", args.ids, {args.sequences.count});
  check.array("candidates", args.candidates, {args.sequences.count, args.stride});
  check.array("position_out", args.position_out, {args.sequences.count});
}

}  // namespace frt
