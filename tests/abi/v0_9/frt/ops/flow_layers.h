/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/flow_layers.h - the layers of a flow expert as one operator. A step of denoising sends
 * some dozens of rows through all of them: what it takes is reading the weights, and what it waits
 * for is one operator after another. A backend that sees all layers at once can read the weights of
 * the next product while the one before is still being finished.
 */
#ifndef FRT_OPS_FLOW_LAYERS_H_
#define FRT_OPS_FLOW_LAYERS_H_

#include <frt/kernels.h>
#include <frt/ops/dense.h>
#include <frt/ops/dense_attention.h>
#include <frt/ops/row_norm.h>

FRT_EXTERN_C_BEGIN

/* One layer; frozen. The matrices are (outputs, inputs) of any format; `key_value` has the outputs
 * of the keys first. Scales are those of FP8 activations (frt/ops/dense.h), each of the input of
 * one product: above 0, and that product's weights are FP8_TENSOR or FP8_CHANNEL; 0: the input is
 * of the operator's type. down_scale goes with hidden_scale. */
typedef struct frt_flow_layer {
  frt_weight query;              /* (heads * head_dim, width) */
  frt_weight key_value;          /* (2 * kv_heads * head_dim, width) */
  frt_weight output;             /* (width, heads * head_dim) */
  frt_weight gate;               /* (hidden, width) */
  frt_weight up;                 /* (hidden, width) */
  frt_weight down;               /* (width, hidden) */
  frt_modulation attention_norm; /* scale, shift; and the gate of what attention adds to x */
  frt_modulation hidden_norm;    /* the same of the GeGLU block */
  const void* context_k;         /* row p of context c at + (c * context_rows + p) *
                                    context_stride; NULL with context_rows 0 */
  const void* context_v;
  float qkv_scale;    /* of norm(x) before query and key_value */
  float output_scale; /* of what attention yields */
  float hidden_scale; /* of norm(x) before gate and up */
  float down_scale;   /* of the product of gate and up */
} frt_flow_layer;
FRT_ASSERT_LAYOUT(frt_flow_layer, 480, down_scale, 476);

/* x through layer_count layers, in place. For each layer, with A = attention_norm, M = hidden_norm:
 *   n = adaptive(x; A);  q = rope(n Wq^T);  k, v = rope(n Wk^T), n Wv^T
 *   x += A.gate * (dense_attention(q, k, v, context) Wo^T)
 *   n = adaptive(x; M);  h = gelu(n Wg^T) * (n Wu^T)
 *   x += M.gate * (h Wd^T)
 * There are `count` sequences of `rows` rows; sequence b sees all of its own rows and the first
 * context_length[c] rows of context c = b / sequences_per_context, which come first: row i of the
 * sequence has position context_length[c] + i for rope (without contexts: i).
 *
 * Sums, norms and softmax in f32. Values in between have the type that their working memory says,
 * or a wider one; x may be in f32 until the last layer has added to it. Working memory holds
 * nothing of use afterwards, and a backend that needs none of it may leave it untouched.
 *
 * Composition, of each layer: norm_qkv, dense_attention, dense, norm_geglu, dense. */
#define FRT_OP_FLOW_LAYERS "frt.flow_layers/1"
typedef struct frt_flow_layers_args {
  uint32_t struct_size;
  frt_dtype x_dtype; /* f32, bf16 */
  frt_dtype dtype;   /* of contexts and working memory: f32, bf16 */
  int32_t layer_count;
  int32_t count; /* sequences; count * rows < 2^31 */
  int32_t rows;  /* per sequence, at least 1 */
  int32_t width;
  int32_t hidden;
  int32_t heads, kv_heads;       /* heads % kv_heads == 0 */
  int32_t head_dim;              /* even */
  float epsilon;                 /* of the norms */
  float scale;                   /* of q K^T */
  int32_t context_rows;          /* room per context; 0: there is none */
  int32_t sequences_per_context; /* with contexts: divides count */
  int32_t positions;             /* rows of the table */
  const int32_t* context_length; /* (count / sequences_per_context) device, 0 .. context_rows */
  int64_t context_stride;        /* elements, >= kv_heads * head_dim */
  const float* table;            /* (positions, head_dim): cosines and sines, as of frt.rope/1 */
  const frt_flow_layer* layers;  /* (layer_count), host memory, read during the call */
  void* x;                       /* (count * rows, width), read and written */
  void* normed;                  /* (count * rows, width) working memory, as all that follow */
  void* q;                       /* (count * rows, heads * head_dim) */
  void* kv;                      /* (count * rows, 2 * kv_heads * head_dim) */
  void* y;                       /* (count * rows, heads * head_dim) */
  void* gate;                    /* (count * rows, hidden) */
  void* h;                       /* (count * rows, hidden) */
} frt_flow_layers_args;
FRT_ASSERT_LAYOUT(frt_flow_layers_args, 152, h, 144);

FRT_EXTERN_C_END

#endif /* FRT_OPS_FLOW_LAYERS_H_ */
