/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/sequences.h - how rows of an activation matrix belong to sequences.
 *
 * A batch has `count` sequences of `rows` rows each: row q of sequence b is row b * rows + q of
 * every activation matrix. One shape serves all uses: prefill is count = 1, rows = bucket; decode
 * is count = batch, rows = 1; several rows for several sequences are both > 1. What varies from
 * run to run is read from device memory when the work runs.
 *
 * Rows q >= length[b] are padding: operators on sequences skip them and leave their outputs as
 * they are. A sequence of length 0 takes no part: its state is neither read nor written.
 *
 * Operators on plain rows know no sequences; they take `row_count`, a device pointer (or NULL):
 * only the first min(rows, *row_count) rows need be computed, others may or may not be written.
 */
#ifndef FRT_OPS_SEQUENCES_H_
#define FRT_OPS_SEQUENCES_H_

#include <frt/base.h>

FRT_EXTERN_C_BEGIN

/* Frozen. The pointers are device memory. */
typedef struct frt_sequences {
  int32_t count;           /* sequences, > 0; count * rows < 2^31 */
  int32_t rows;            /* rows per sequence, > 0 */
  const int32_t* slot;     /* (count) slot of the state arena; distinct among active sequences */
  const int32_t* position; /* (count) position of row 0 of the sequence, >= 0 */
  const int32_t* length;   /* (count) valid rows, 0 .. rows */
} frt_sequences;
FRT_ASSERT_LAYOUT(frt_sequences, 32, length, 24);

FRT_EXTERN_C_END

#endif /* FRT_OPS_SEQUENCES_H_ */
