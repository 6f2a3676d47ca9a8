/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/attention.h - causal attention of new rows over a slot's history and themselves.
 *
 * Keys and values live in the state arena, one row per position:
 *   key row p of slot s:   keys + s * slot_stride bytes + p * (kv_heads * head_dim) elements of
 *                          kv_dtype
 * or, where the arena has pages (frt/capsule.h), in the page that the table names:
 *   keys + pages.table[s * slot_pages + p / rows] * stride bytes
 *        + (p % rows) * (kv_heads * head_dim) elements
 * Values lie likewise. Row q of sequence b has position position[b] + q, and attends to
 * positions 0 to position[b] + q. Query head h uses key/value head h / (heads / kv_heads). Softmax
 * in f32.
 */
#ifndef FRT_OPS_ATTENTION_H_
#define FRT_OPS_ATTENTION_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

#define FRT_PAGE_ROWS_LEAST 64 /* rows of a page that operators take */

/* Where the rows of a slot are; all zero: one after the other. The table, and with it the slot
 * numbers of the sequences, are written by copies and fills alone, never by a kernel, so that
 * kernels may read them while the one before still runs. Frozen. */
typedef struct frt_page_table {
  const int32_t* table; /* device (slots, slot_pages); NULL: no pages. An entry of -1 is no page:
                           rows there are not stored, and must not be read */
  int64_t stride;       /* bytes from page to page, of keys and of values */
  int32_t slot_pages;   /* pages of a slot; slot_pages * rows >= max_rows */
  int32_t rows;         /* of a page, a power of two, at least FRT_PAGE_ROWS_LEAST */
} frt_page_table;
FRT_ASSERT_LAYOUT(frt_page_table, 24, rows, 20);

/* Norm, rotate and store, per head:
 *   q_out = rope(rms_norm(q) * q_norm);  keys[p] = rope(rms_norm(k) * k_norm);  values[p] = v
 * q_norm / k_norm NULL: no norm. rope rotates the first rotary_dim dimensions, half-split pairs
 * (j, j + rotary_dim / 2), by the f32 angle float(p) * inv_freq[j], cos and sin times rope_scale;
 * the others pass. Positions >= max_rows are not stored. */
#define FRT_OP_ATTENTION_APPEND "frt.attention_append/1"
typedef struct frt_attention_append_args {
  uint32_t struct_size;
  frt_dtype dtype;    /* of q, k, v, q_out: f32, bf16 */
  frt_dtype kv_dtype; /* of keys and values: f32, bf16, f8_e4m3 */
  float epsilon;
  frt_sequences sequences;
  int32_t heads, kv_heads, head_dim; /* heads % kv_heads == 0 */
  int32_t rotary_dim;                /* even, <= head_dim; 0: no rope */
  const void* q;                     /* row r, head h at q + r * q_row_stride + h * q_head_stride */
  int64_t q_row_stride;              /* elements */
  int64_t q_head_stride;             /* elements */
  const void* k;                     /* (count * rows, kv_heads, head_dim) */
  const void* v;                     /* (count * rows, kv_heads, head_dim) */
  const float* q_norm;               /* (head_dim) or NULL */
  const float* k_norm;               /* (head_dim) or NULL */
  const float* inv_freq;             /* (rotary_dim / 2), device; NULL: rotary_dim is 0 */
  float rope_scale;                  /* 1 unless the rope type says otherwise */
  float k_scale, v_scale;            /* f8_e4m3: stored value = value / scale, > 0; 1 otherwise */
  int32_t max_rows;                  /* positions a slot has room for */
  void* keys;                        /* slot 0 or page 0, position 0 */
  void* values;
  int64_t slot_stride; /* bytes, of keys and of values; ignored with pages */
  void* q_out;         /* (count * rows, heads, head_dim) */
  frt_page_table pages;
} frt_attention_append_args;
FRT_ASSERT_LAYOUT(frt_attention_append_args, 200, pages, 176);

/* y = softmax(scale * q K^T, causal) V, then y *= sigmoid(gate) if there is a gate. */
#define FRT_OP_ATTENTION "frt.attention/1"
typedef struct frt_attention_args {
  uint32_t struct_size;
  frt_dtype dtype;    /* of q, gate, y: f32, bf16 */
  frt_dtype kv_dtype; /* f32, bf16, f8_e4m3 */
  float scale;
  frt_sequences sequences;
  int32_t heads, kv_heads, head_dim; /* heads % kv_heads == 0 */
  int32_t max_rows;
  const void* q; /* (count * rows, heads, head_dim) */
  const void* keys;
  const void* values;
  int64_t slot_stride;      /* bytes; ignored with pages */
  float k_scale, v_scale;   /* f8_e4m3: > 0 */
  const void* gate;         /* row r, head h at gate + r * gate_row_stride + h * gate_head_stride;
                               NULL: none */
  int64_t gate_row_stride;  /* elements */
  int64_t gate_head_stride; /* elements */
  void* y;                  /* (count * rows, heads, head_dim) */
  frt_page_table pages;
} frt_attention_args;
FRT_ASSERT_LAYOUT(frt_attention_args, 160, pages, 136);

/* Both. Composition: attention_append into append.q_out = attention.q, then attention. */
#define FRT_OP_ATTENTION_BLOCK "frt.attention_block/1"
typedef struct frt_attention_block_args {
  uint32_t struct_size;
  uint32_t reserved;
  frt_attention_append_args append;
  frt_attention_args attention;
} frt_attention_block_args;
FRT_ASSERT_LAYOUT(frt_attention_block_args, 368, attention, 208);

FRT_EXTERN_C_END

#endif /* FRT_OPS_ATTENTION_H_ */
