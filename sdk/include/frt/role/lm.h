/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/role/lm.h - the role "language model": how a host makes any model of this kind read and
 * write tokens. An extension of a model object.
 *
 * The model has `slots` slots of state; one slot holds one live sequence. A boundary of a slot is
 * the number of tokens fed to it. Before a slot is used for a new sequence the host clears it
 * (frt_state_v1::state_clear), or restores a capsule. Before each replay it reserves the rows that
 * the replay writes (frt_state_v1::state_reserve), per entry: [position, position + length) for
 * prefill and decode, up to `position` for draft.
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
 * Drafting, where has_draft: `draft` under draft_key(B) proposes one more token per entry; see
 * draft_* below.
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
 * graphs are borrowed. */
typedef struct frt_lm_info {
  uint32_t struct_size;
  uint32_t vocabulary;  /* logits per row */
  uint32_t max_context; /* positions per slot */
  uint32_t slots;
  uint32_t prefill_chunk; /* the most tokens of one prefill replay */
  uint32_t max_batch;     /* the most entries of one decode replay */
  uint32_t has_draft;
  uint32_t reserved;
  frt_state state; /* the arena of slots */
  frt_graph prefill, decode, draft;

  /* Inputs, device space. */
  frt_buffer tokens;    /* i32 (max(prefill_chunk, max_batch)) */
  frt_buffer slot_ids;  /* i32 (max_batch) */
  frt_buffer positions; /* i32 (max_batch) */
  frt_buffer lengths;   /* i32 (max_batch) */
  frt_buffer starts;    /* u32 (max_batch): 1: a new request begins with this step, else 0 */
  frt_buffer sampling;  /* frt_sampling_params (max_batch) */
  frt_buffer mask;      /* u32 (max_batch, mask_words): allowed tokens; used where sampling says */

  /* Outputs, device space. */
  frt_buffer next_tokens;       /* i32 (max_batch) */
  frt_buffer log_probabilities; /* f32 (max_batch): of next_tokens */
  frt_buffer logits;            /* f32 (max_batch, vocabulary) */

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
} frt_lm_info;
FRT_ASSERT_LAYOUT(frt_lm_info, 200, decode_bytes_expert, 192);

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
  /* Drafting. `prefill` and `decode` leave the final hidden row of each entry with the slot.
   * A draft replay takes in tokens[b] the token that follows (or -1: pending), in positions[b] the
   * boundary, and leaves one proposed token in `next_tokens` without touching the pending token;
   * repeated, it continues from its own output.  [hot] */
  frt_status (*draft_key)(frt_model model, uint32_t batch, frt_shape_key* key, uint32_t* entries);
} frt_role_lm_v1;
FRT_ASSERT_LAYOUT(frt_role_lm_v1, 40, draft_key, 32);

FRT_EXTERN_C_END

#endif /* FRT_ROLE_LM_H_ */
