/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/dense_attention.h - attention without a causal mask: every row of a sequence sees all
 * valid rows of the sequence and all of a context that was computed before. Encoders (no context,
 * any head size, e.g. 16 heads of 72), prefixes, and action experts (few rows, a long context
 * shared by several sequences, one key/value head for all query heads: fold heads into rows).
 * Softmax in f32.
 */
#ifndef FRT_OPS_DENSE_ATTENTION_H_
#define FRT_OPS_DENSE_ATTENTION_H_

#include <frt/kernels.h>
#include <frt/ops/dense.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* Rotates heads in place: pairs (j, j + head_dim / 2) by the angles of the row's position,
 *   low' = low cos - high sin;  high' = high cos + low sin.
 * Row i of sequence b has position (base ? base[b / sequences_per_base] : 0) + i. Row p of `table`
 * holds the cosines of its head_dim / 2 angles, then the sines. A row whose position is outside
 * the table is left as it is. */
#define FRT_OP_ROPE "frt.rope/1"
typedef struct frt_rope_args {
  uint32_t struct_size;
  frt_dtype dtype;            /* of q and k: f32, bf16 */
  int32_t count;              /* sequences, at least 1; count * rows < 2^31 */
  int32_t rows;               /* per sequence, at least 1 */
  int32_t heads, kv_heads;    /* heads: of q */
  int32_t head_dim;           /* even */
  int32_t sequences_per_base; /* with base: divides count */
  const int32_t* base;        /* (count / sequences_per_base) device, or NULL: 0 */
  const float* table;         /* (positions, head_dim) */
  int32_t positions;          /* rows of the table */
  uint32_t reserved;
  void* q;          /* (count * rows, heads, head_dim), rows q_stride elements apart; NULL: none */
  int64_t q_stride; /* elements */
  void* k;          /* (count * rows, kv_heads, head_dim), rows k_stride elements apart */
  int64_t k_stride; /* elements */
} frt_rope_args;
FRT_ASSERT_LAYOUT(frt_rope_args, 88, k_stride, 80);

/* norm_dense and rope of what it wrote: the input of an attention block. products.rows is
 * rope.count * rope.rows; rope.q and rope.k lie in the y of parts. Composition: both. */
#define FRT_OP_NORM_QKV "frt.norm_qkv/1"
typedef struct frt_norm_qkv_args {
  uint32_t struct_size;
  uint32_t reserved;
  frt_norm_dense_args products;
  frt_rope_args rope;
} frt_norm_qkv_args;
FRT_ASSERT_LAYOUT(frt_norm_qkv_args, 208, rope, 120);

/* y = softmax(scale * q K^T) V. Sequence b has `rows` rows, of which length[b] are valid as queries
 * and as keys, and sees besides them the first context_length[c] rows of context
 * c = b / sequences_per_context, which come first. Query head h uses key/value head
 * h / (heads / kv_heads). Rows that are not valid may be written with anything finite. */
#define FRT_OP_DENSE_ATTENTION "frt.dense_attention/1"
typedef struct frt_dense_attention_args {
  uint32_t struct_size;
  frt_dtype dtype; /* of q, k, v, the context and y: f32, bf16 */
  float scale;
  int32_t count;                     /* sequences, at least 1; count * rows < 2^31 */
  int32_t rows;                      /* per sequence, at least 1 */
  int32_t heads, kv_heads, head_dim; /* heads % kv_heads == 0 */
  const int32_t* length;             /* (count) device, 0 .. rows; NULL: all rows */
  const void* q;                     /* row r of all, head h at q + r * q_stride + h * head_dim */
  int64_t q_stride;                  /* elements */
  const void* k;                     /* row r of all, head h at k + r * kv_stride + h * head_dim */
  const void* v;
  int64_t kv_stride;    /* elements */
  int32_t context_rows; /* room per context; 0: there is none, and the next five are not read */
  int32_t sequences_per_context; /* divides count */
  const int32_t* context_length; /* (count / sequences_per_context) device, 0 .. context_rows */
  const void* context_k; /* row p of context c at + (c * context_rows + p) * context_stride */
  const void* context_v;
  int64_t context_stride; /* elements */
  void* y;                /* row r of all, head h at y + r * y_stride + h * head_dim */
  int64_t y_stride;       /* elements */
  float y_scale;          /* above 0: y is f8_e4m3 (frt/ops/dense.h) */
  uint32_t reserved;
} frt_dense_attention_args;
FRT_ASSERT_LAYOUT(frt_dense_attention_args, 144, y_scale, 136);

FRT_EXTERN_C_END

#endif /* FRT_OPS_DENSE_ATTENTION_H_ */
