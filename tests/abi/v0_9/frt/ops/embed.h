/* SPDX-License-Identifier: Apache-2.0 */
/* frt/ops/embed.h - token ids to rows of an embedding table. */
#ifndef FRT_OPS_EMBED_H_
#define FRT_OPS_EMBED_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* y[r, :] = table[ids[r], :]. An id outside the table gives a row of zeros; nothing is read
 * outside. y: f32, bf16. Tables in other formats than f32 and
 * bf16 are dequantised row by row, by the backends that take them. */
#define FRT_OP_EMBED "frt.embed/1"
typedef struct frt_embed_args {
  uint32_t struct_size;
  frt_dtype y_dtype;
  int32_t rows; /* upper bound of rows, at least 1 */
  int32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL: all rows */
  const int32_t* ids;       /* (rows) */
  frt_weight table;         /* (vocabulary, width) */
  void* y;                  /* (rows, y_stride) */
  int64_t y_stride;         /* elements from row to row, >= width */
} frt_embed_args;
FRT_ASSERT_LAYOUT(frt_embed_args, 112, y_stride, 104);

/* ids_out[b * rows + q] = ids[...] if it is >= 0, else pending[slot[b]]. So that the next step can
 * be submitted before the host knows the last token. */
#define FRT_OP_SELECT_TOKENS "frt.select_tokens/1"
typedef struct frt_select_tokens_args {
  uint32_t struct_size;
  int32_t reserved;
  frt_sequences sequences;
  const int32_t* ids;     /* (count * rows) */
  const void* pending;    /* i32, one per slot: slot s at pending + s * pending_stride */
  int64_t pending_stride; /* bytes from slot to slot */
  int32_t* ids_out;       /* (count * rows) */
} frt_select_tokens_args;
FRT_ASSERT_LAYOUT(frt_select_tokens_args, 72, ids_out, 64);

/* y[b, :] = x[b * rows + length[b] - 1, :], the last valid row of each sequence; nothing is
 * written for sequences of length 0. x and y: f32, bf16, of one type. */
#define FRT_OP_LAST_ROWS "frt.last_rows/1"
typedef struct frt_last_rows_args {
  uint32_t struct_size;
  frt_dtype dtype;
  frt_sequences sequences;
  int32_t width;
  int32_t reserved;
  const void* x;    /* (count * rows, x_stride) */
  int64_t x_stride; /* elements */
  void* y;          /* (count, y_stride) */
  int64_t y_stride; /* elements */
} frt_last_rows_args;
FRT_ASSERT_LAYOUT(frt_last_rows_args, 80, y_stride, 72);

FRT_EXTERN_C_END

#endif /* FRT_OPS_EMBED_H_ */
