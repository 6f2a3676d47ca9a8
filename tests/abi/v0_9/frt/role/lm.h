/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/role/lm.h - the role "language model": how a host makes any model of this kind read and
 * write tokens. An extension of a model object.
 *
 * The model has `slots` slots of state; one slot holds one live sequence. A boundary of a slot is
 * the number of tokens fed to it. Before a slot is used for a new sequence the host clears it
 * (frt_state_v1::state_clear), or restores a capsule. Before each replay it reserves the rows that
 * the replay writes (frt_state_v1::state_reserve), per entry: [position, position + length) for
 * prefill, decode and verify, and [position - 1, position - 1 + k) for draft.
 *
 * Reading (prefill): write up to prefill_chunk tokens of ONE sequence into `tokens`, its slot,
 * position (= boundary) and length into entry 0 of `slots`, `positions`, `lengths`, and replay
 * `prefill` under prefill_key(length). Chunk edges at absolute multiples of prefill_chunk make
 * results reproducible from any restored boundary at such an edge.
 *
 * Writing (decode): for each of B sequences put its last token (or -1: the slot's pending token,
 * as sampled by the previous replay) into tokens[b], and slot, position and length (1, or 0 for an
 * entry that takes no part); replay `decode` under decode_key(B). So step n + 1 may be submitted
 * before token n has reached the host.
 *
 * Both end with one token per active entry in `next_tokens`, sampled on the device as `sampling`
 * says, for position positions[b] + lengths[b]; it is also the slot's pending token. Prefill of
 * chunks that are not the last samples too; ignore it. The pending token and what the penalties
 * count are state of the slot (FIXED regions), so that a capsule goes on exactly. What `prefill`
 * reads counts as prompt, what `decode` reads as generated (frt.count_tokens/1), before it samples.
 *
 * Requests: penalties (frt/ops/sample.h) see one request, that is one prompt and what was generated
 * behind it. A step with starts[b] = 1 begins a new request in its slot: what the slot was fed
 * before counts as prompt, and generated-token counts restart at zero. Write 1 with the first step
 * of a prompt that goes on from what the slot holds, 0 with every other: its further chunks, and
 * decode. A cleared slot needs no 1. A restored capsule is in the middle of the request it was
 * taken in: decode goes on with that request and its counts, a new prompt begins the next one.
 *
 * Drafting, where has_draft: `draft` under draft_key(B, k) proposes k tokens for each of B
 * sequences, and `verify` under verify_key(B, k + 1) is up to k + 1 decode steps of each in one
 * replay. See draft_key and verify_key.
 */
#ifndef FRT_ROLE_LM_H_
#define FRT_ROLE_LM_H_

#include <frt/base.h>
#include <frt/capsule.h>
#include <frt/exec.h>
#include <frt/model.h>
#include <frt/ops/sample.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_ROLE_LM "frt.role.lm/1"

/* Limits and handles, constant for the life of the model. The caller sets struct_size. Buffers and
 * graphs are borrowed. Optional: `mask` (NULL: the model takes none), `logits` (NULL: a host cannot
 * ask for them), `draft`, and the members of the blocks "Drafts" and "Bias". */
typedef struct frt_lm_info {
  uint32_t struct_size;
  uint32_t vocabulary;  /* logits per row */
  uint32_t max_context; /* positions per slot */
  uint32_t slots;
  uint32_t prefill_chunk; /* the most tokens of one prefill replay */
  uint32_t max_batch;     /* the most entries of one decode replay */
  uint32_t has_draft;
  uint32_t max_drafts;              /* tokens that one draft replay proposes per entry; 0: none */
  frt_state state;                  /* the arena of slots */
  frt_graph prefill, decode, draft; /* draft: NULL without has_draft */

  /* Inputs, device space. */
  frt_buffer tokens;    /* i32 (max(prefill_chunk, max_batch)) */
  frt_buffer slot_ids;  /* i32 (max_batch) */
  frt_buffer positions; /* i32 (max_batch) */
  frt_buffer lengths;   /* i32 (max_batch) */
  frt_buffer starts;    /* u32 (max_batch): 1: a new request begins with this step, else 0 */
  frt_buffer sampling;  /* frt_sampling_params (max_batch) */
  frt_buffer mask;      /* u32 (rows, mask_words): allowed tokens; used where sampling says. NULL:
                           none */

  /* Outputs, device space. A row is an entry; in `verify` row q of entry b is row b * R + q, where
   * R is the rows of the variant. There are max(max_batch, max_rows) rows. */
  frt_buffer next_tokens;       /* i32 (rows) */
  frt_buffer log_probabilities; /* f32 (rows): of next_tokens */
  frt_buffer logits;            /* f32 (rows, vocabulary). NULL: none */

  uint64_t mask_words;            /* words per entry of `mask` */
  uint64_t decode_bytes_weights;  /* bytes of weights one decode step must read, batch 1 */
  uint64_t decode_bytes_state;    /* bytes of fixed state one step reads and writes, per entry */
  uint64_t decode_bytes_position; /* bytes of rows one step reads per position of context */
  uint64_t prefill_flops_token;   /* floating point operations per prefilled token, without
                                     attention over history */

  /* Of a mixture of experts; 0: there is none. A step of several entries reads every expert that
   * any of them picks once. */
  uint32_t experts;             /* routed ones of a layer */
  uint32_t experts_per_token;   /* the router's top-k */
  uint64_t decode_bytes_expert; /* bytes of one routed expert of every layer; those of
                                   experts_per_token are in decode_bytes_weights */

  /* Drafts; NULL and 0 without has_draft. */
  frt_graph verify;
  frt_buffer candidates; /* i32 (max_rows): what draft leaves and verify feeds */
  frt_buffer stops;      /* i32 (max_batch, stop_capacity): an entry's drafts of these ids are not
                            accepted; -1: none. NULL where stop_capacity is 0 */
  frt_buffer accepted;   /* i32 (max_batch): drafts that verify accepted */
  uint32_t max_rows;     /* entries * rows of one verify replay, at most */
  /* Ids of an entry of `stops`. A request with more of them is not drafted. */
  uint32_t stop_capacity;

  /* Bias. Input, device space; NULL and 0: the model takes none. */
  frt_buffer bias;        /* frt_logit_bias (max_batch, bias_capacity); used where sampling says;
                             each id of an entry once, which the host sees to */
  uint32_t bias_capacity; /* tokens of an entry of `bias` */
  uint32_t reserved;
} frt_lm_info;
FRT_ASSERT_LAYOUT(frt_lm_info, 256, reserved, 252);

typedef struct frt_role_lm_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  frt_status (*info)(frt_model model, frt_lm_info* info); /* [any] */
  /* The key of the smallest variant that takes `rows` tokens of one sequence; 0 rows or more than
   * prefill_chunk: FRT_ERR_OUT_OF_RANGE.  [hot] */
  frt_status (*prefill_key)(frt_model model, uint32_t rows, frt_shape_key* key);
  /* The key of the smallest variant that takes `batch` entries, and how many it has: `batch` to
   * max_batch. The host gives those from `batch` on the length 0.  [hot] */
  frt_status (*decode_key)(frt_model model, uint32_t batch, frt_shape_key* key, uint32_t* entries);
  /* Drafting. `prefill`, `decode` and `verify` leave the final hidden row of each entry with the
   * slot. A draft replay takes in tokens[b] the token that follows (or -1: pending), in
   * positions[b] the boundary. It leaves that token and the `drafts` proposed behind it in
   * `candidates`, drafts + 1 rows an entry, and the last one in `next_tokens`, without touching the
   * pending token; repeated at the next position, it continues from its own output. 1 <= drafts
   * <= max_drafts. Optional: NULL, or FRT_ERR_UNSUPPORTED, without has_draft.  [hot] */
  frt_status (*draft_key)(frt_model model, uint32_t batch, uint32_t drafts, frt_shape_key* key,
                          uint32_t* entries);
  /* Verifying. Feeds the first lengths[b] (1 .. rows) rows of `candidates`: the token that follows
   * (or -1: pending), then drafts. Samples behind each row as decode would, and accepts drafts
   * while they are what was sampled: `next_tokens` has a token for each row. With n = accepted[b] +
   * 1, the first n are the text, the last of these is the slot's pending token, and the slot is as
   * n decode replays leave it, bit for bit. `starts` is not read. FRT_ERR_OUT_OF_RANGE where batch
   * * rows is more than max_rows. Optional: NULL, or FRT_ERR_UNSUPPORTED, without has_draft.
   * [hot] */
  frt_status (*verify_key)(frt_model model, uint32_t batch, uint32_t rows, frt_shape_key* key,
                           uint32_t* entries);
} frt_role_lm_v1;
FRT_ASSERT_LAYOUT(frt_role_lm_v1, 48, verify_key, 40);

FRT_EXTERN_C_END

#endif /* FRT_ROLE_LM_H_ */
