/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/ops/sample.h - from logits to the next token, on the device.
 *
 * Order of processing, per sequence (all f32, but a sum over the vocabulary must be within 1e-5 of
 * the exact one, which a plain f32 loop over 50,000 tokens misses):
 *   1. allowed mask: tokens whose bit is 0 get -inf; so do tokens >= `vocabulary`, and NaN;
 *   2. bias: l += value for the tokens of the sequence's `bias`; then
 *      repetition penalty on tokens seen (prompt or generated): l > 0 ? l / r : l * r;
 *      frequency: l -= frequency * count of generated;  presence: l -= presence if count > 0;
 *   3. temperature 0: the largest logit, ties to the lowest id. Otherwise l /= temperature;
 *   4. top_k: the k largest (ties: lower id first); 0: all;
 *   5. softmax over what is left; top_p: the smallest set of largest probabilities whose sum is
 *      >= top_p (always at least one); min_p: those with p >= min_p * largest p;
 *   6. one draw: u = philox4x32-10(key = seed, counter = (position, 0, 0, 0))[0] * 2^-32 picks the
 *      first token, by falling probability (ties: lower id first), at which the running sum of the
 *      renormalised probabilities exceeds u.
 * The draw depends on (seed, position) alone, so a run can be repeated, forked and rewound.
 *
 * The parameters are read when the work runs: no launch can refuse them, so a kernel has all steps.
 */
#ifndef FRT_OPS_SAMPLE_H_
#define FRT_OPS_SAMPLE_H_

#include <frt/kernels.h>
#include <frt/ops/sequences.h>

FRT_EXTERN_C_BEGIN

/* How one sequence is sampled; frozen; lives in device memory. Penalties see one request:
 * repetition its prompt and what it generated, presence and frequency what it generated. */
typedef struct frt_sampling_params {
  float temperature;        /* 0: greedy */
  float top_p;              /* 1: off */
  float min_p;              /* 0: off */
  int32_t top_k;            /* 0: off */
  float repetition_penalty; /* 1: off */
  float presence_penalty;   /* 0: off */
  float frequency_penalty;  /* 0: off */
  uint32_t use_mask;        /* 1: the allowed mask applies */
  uint64_t seed;
  uint32_t bias_count; /* entries of the sequence's `bias` that apply; 0: none */
  uint32_t reserved;
} frt_sampling_params;
FRT_ASSERT_LAYOUT(frt_sampling_params, 48, reserved, 44);

/* What is added to the logit of one token; frozen; lives in device memory. */
typedef struct frt_logit_bias {
  int32_t id; /* outside 0 to vocabulary - 1: skipped */
  float value;
} frt_logit_bias;
FRT_ASSERT_LAYOUT(frt_logit_bias, 8, value, 4);

/* ids[r] = index of the largest of logits[r, 0 to width - 1], ties to the lowest; NaN never wins.
 */
#define FRT_OP_ARGMAX "frt.argmax/1"
typedef struct frt_argmax_args {
  uint32_t struct_size;
  int32_t rows;  /* at least 1 */
  int32_t width; /* at least 1 */
  uint32_t reserved;
  const int32_t* row_count; /* (1) device, or NULL */
  const float* logits;      /* (rows, stride) */
  int64_t stride;           /* elements */
  int32_t* ids;             /* (rows) */
} frt_argmax_args;
FRT_ASSERT_LAYOUT(frt_argmax_args, 48, ids, 40);

/* Counts tokens per slot for the penalties of the present request. counts[id] of a slot: bits
 * 0..30 how often the request generated it, bit 31: it stands in the request's prompt. Where
 * restart[b] is not 0 a new request begins before the ids are counted: every token seen so far
 * then stands in the prompt, generated 0 times. Ids outside 0 to vocabulary - 1 are skipped. A
 * count of 2^31 - 1 stays. */
#define FRT_OP_COUNT_TOKENS "frt.count_tokens/1"
typedef struct frt_count_tokens_args {
  uint32_t struct_size;
  uint32_t generated; /* 1: count them; 0: mark them as prompt */
  frt_sequences sequences;
  const int32_t* ids; /* (count * rows) */
  int32_t vocabulary;
  uint32_t reserved;
  void* counts;            /* u32; slot s at counts + s * slot_stride: (vocabulary) */
  int64_t slot_stride;     /* bytes */
  const uint32_t* restart; /* (count) device; NULL: no request begins */
} frt_count_tokens_args;
FRT_ASSERT_LAYOUT(frt_count_tokens_args, 80, restart, 72);

/* One token per active sequence, for position position[b] + length[b]; with `fed` one for each of
 * its rows, row q for position[b] + q + 1, as if the rows up to q had been fed one at a time. */
#define FRT_OP_SAMPLE "frt.sample/1"
typedef struct frt_sample_args {
  uint32_t struct_size;
  int32_t vocabulary; /* ids that may be drawn: 0 to vocabulary - 1 */
  frt_sequences sequences;
  const float* logits;               /* (count, stride), with `fed` (count * rows, stride); not
                                        changed */
  int64_t stride;                    /* elements */
  const frt_sampling_params* params; /* (count) */
  const uint32_t* mask;     /* (count, mask_stride), with `fed` (count * rows, mask_stride): bit
                               i % 32 of word i / 32; NULL: none */
  int64_t mask_stride;      /* words */
  const void* counts;       /* as in count_tokens; NULL: no penalties */
  int64_t counts_stride;    /* bytes from slot to slot */
  void* pending;            /* i32 per slot, written; NULL: none, as it must be with `fed` */
  int64_t pending_stride;   /* bytes from slot to slot */
  int32_t* ids;             /* (count), with `fed` (count * rows); written where a token is drawn */
  float* log_probabilities; /* as ids: natural logarithm of the drawn token's probability under
                               softmax of step 2's logits; NULL: not wanted */
  const int32_t* fed; /* (count * rows) the tokens of the rows, which `counts` lacks: row q sees
                         those of the rows 0 .. q as generated. NULL: one token per sequence */
  const frt_logit_bias* bias; /* (count, bias_stride): all rows of sequence b have the first
                                 params[b].bias_count, at most bias_stride, each id once (what an
                                 id that is there twice gets is not defined). NULL: none */
  int64_t bias_stride;        /* elements, at least 1 */
} frt_sample_args;
FRT_ASSERT_LAYOUT(frt_sample_args, 152, bias_stride, 144);

/* Which drafted tokens are those of the text. Row 0 of a sequence was fed a token of the text, the
 * rows behind it drafts; drawn[q] is what was drawn behind row q.
 *   accepted[b]  = the most n < length[b] such that fed[q + 1] = drawn[q] for all q < n, and none
 *                  of them is a stop of the sequence
 *   committed[b] = accepted[b] + 1, the rows that are the text; 0 where length[b] is 0
 *   pending      = drawn[accepted[b]] of active sequences */
#define FRT_OP_ACCEPT_TOKENS "frt.accept_tokens/1"
typedef struct frt_accept_tokens_args {
  uint32_t struct_size;
  int32_t stop_count; /* per sequence, >= 0 */
  frt_sequences sequences;
  const int32_t* fed;     /* (count * rows) */
  const int32_t* drawn;   /* (count * rows) */
  const int32_t* stops;   /* (count, stop_count) drafts that are not accepted; others < 0 */
  int32_t* accepted;      /* (count) */
  int32_t* committed;     /* (count) */
  void* pending;          /* i32 per slot, written */
  int64_t pending_stride; /* bytes from slot to slot */
} frt_accept_tokens_args;
FRT_ASSERT_LAYOUT(frt_accept_tokens_args, 96, pending_stride, 88);

/* A token becomes the next one's input while drafting, per active sequence:
 *   candidates[b * stride + column] = ids[b];  position_out[b] = position[b] + 1 */
#define FRT_OP_CHAIN_TOKENS "frt.chain_tokens/1"
typedef struct frt_chain_tokens_args {
  uint32_t struct_size;
  int32_t column; /* 0 .. stride - 1 */
  frt_sequences sequences;
  const int32_t* ids;    /* (count * rows), rows = 1 */
  int32_t* candidates;   /* (count, stride) */
  int64_t stride;        /* elements */
  int32_t* position_out; /* (count); may be sequences.position */
} frt_chain_tokens_args;
FRT_ASSERT_LAYOUT(frt_chain_tokens_args, 72, position_out, 64);
FRT_EXTERN_C_END

#endif /* FRT_OPS_SAMPLE_H_ */
