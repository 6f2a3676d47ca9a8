/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/rows.h - activation rows that stay with a slot between runs. A draft head reads the
 * trunk's row of one position together with the token of the next; these two operators keep the
 * row that is still waiting for its token.
 */
#ifndef FRT_OPS_ROWS_H_
#define FRT_OPS_ROWS_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* Pairs the token of every position with the row of the position before it. Per sequence b with
 * position p and length n > 0:
 *   p > 0:  n pairs:      (ids[0], carry), (ids[1], x[0]), ...;  position p - 1
 *   p = 0:  n - 1 pairs:  (ids[1], x[0]), (ids[2], x[1]), ...;   position 0
 * position_out and length_out describe the pairs as a sequence of its own (0 pairs where n is 0).
 * Pairs beyond length_out are not written. */
#define FRT_OP_LAG_ROWS "frt.lag_rows/1"
typedef struct frt_lag_rows_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of x, carry and y: f32, bf16 */
  frt_sequences sequences;
  int32_t width;
  int32_t reserved;
  const int32_t* ids;    /* (count * rows) */
  const void* x;         /* (count * rows, width); may be NULL if rows is 1 */
  const void* carry;     /* slot s at carry + s * slot_stride: (width); read only */
  int64_t slot_stride;   /* bytes */
  int32_t* ids_out;      /* (count * rows); not ids */
  void* y;               /* (count * rows, width); not x */
  int32_t* position_out; /* (count) */
  int32_t* length_out;   /* (count) */
} frt_lag_rows_args;
FRT_ASSERT_LAYOUT(frt_lag_rows_args, 112, length_out, 104);

/* target[slot[b], :] = x[b * rows + length[b] - 1, :], the last valid row of each sequence, kept
 * with its slot. Sequences of length 0 store nothing. */
#define FRT_OP_STORE_ROWS "frt.store_rows/1"
typedef struct frt_store_rows_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of x and target: f32, bf16 */
  frt_sequences sequences;
  int32_t width;
  int32_t reserved;
  const void* x;       /* (count * rows, width) */
  void* target;        /* slot s at target + s * slot_stride: (width) */
  int64_t slot_stride; /* bytes */
} frt_store_rows_args;
FRT_ASSERT_LAYOUT(frt_store_rows_args, 72, slot_stride, 64);

FRT_EXTERN_C_END

#endif /* FRT_OPS_ROWS_H_ */
