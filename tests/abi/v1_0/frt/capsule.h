/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/capsule.h - the state of a model: its layout, and the arena of slots that holds it.
 *
 * A model's whole mutable state consists of regions. A region is
 *   FIXED  a block of constant size, valid as a whole (a recurrent state, a convolution window), or
 *   ROWS   an array of rows, valid up to the boundary (one row per position).
 * The model plugin describes its regions; core lays them out, allocates one arena with N slots,
 * and can then snapshot, restore and fork any slot of any model without knowing what is inside.
 *
 * A boundary is a number of rows that is consistent over all regions: FIXED regions hold the state
 * after exactly that many rows.
 *
 * Arena. All FIXED regions of a slot are one contiguous range, in the order given and each aligned
 * to 256 bytes. Rows are found in one of two ways, as the layout asks:
 *
 *   block_rows = 0: slot-major. The ROWS regions follow the FIXED ones of their slot, and
 *     row r of slot s is at    pointer + region + s * slot_stride + r * row_bytes.
 *
 *   block_rows > 0: in row blocks, behind the FIXED ranges of all slots. A block has room for
 *     block_rows rows of every ROWS region, region after region, and belongs to nobody until a slot
 *     reserves it. A table in device memory says which block a slot's rows are in:
 *     row r of slot s is at    pointer + region + block * block_stride + (r % block_rows) *
 * row_bytes with                     block = blocks[s * slot_blocks + r / block_rows] Blocks are
 * shared: a forked or restored slot reads the rows of its prefix where they are, so neither costs
 * more for a longer prefix. A block that more than one holder reads is written by none, or by one
 * behind the rows that the others read.
 *
 * Who writes rows of a slot in blocks has reserved them before (state_reserve). Entries of the
 * table for rows that are not reserved are -1: operators store nothing there.
 */
#ifndef FRT_CAPSULE_H_
#define FRT_CAPSULE_H_

#include <frt/base.h>
#include <frt/exec.h>

FRT_EXTERN_C_BEGIN

/* ---- layout ---------------------------------------------------------------------------- */

#define FRT_REGION_FIXED 0u
#define FRT_REGION_ROWS 1u

/* One region; frozen. */
typedef struct frt_region {
  const char* name;   /* unique in the layout, e.g. "layer.3.keys" */
  uint32_t kind;      /* FRT_REGION_* */
  frt_dtype dtype;    /* of its elements, for people and for fingerprints */
  uint64_t row_bytes; /* FIXED: of the whole block; ROWS: of one row */
  uint64_t max_rows;  /* FIXED: 1; ROWS: the most rows */
  int64_t row_lag;    /* ROWS: boundary - row_lag rows are valid (usually 0) */
} frt_region;
FRT_ASSERT_LAYOUT(frt_region, 40, row_lag, 32);

typedef struct frt_capsule_layout {
  uint32_t struct_size;
  uint32_t region_count;
  const frt_region* regions; /* [region_count] */
  uint32_t block_rows;       /* rows of a block, a power of two; 0: no blocks */
  uint32_t spare_blocks;     /* blocks beyond those that full slots need: room for prefixes that
                                are kept and are in no slot any more */
} frt_capsule_layout;
FRT_ASSERT_LAYOUT(frt_capsule_layout, 24, spare_blocks, 20);

/* ---- the plugin's side ----------------------------------------------------------------- */

/* Extension of a model object (frt/model.h): what a capsule of this model consists of. */
#define FRT_EXT_CAPSULE "frt.capsule/1"

/* One named value that must be equal for a capsule to fit: text or digest in hex; frozen. */
typedef struct frt_fingerprint_field {
  const char* name; /* e.g. "config", "weights:model.safetensors", "chunk" */
  const char* value;
} frt_fingerprint_field;
FRT_ASSERT_LAYOUT(frt_fingerprint_field, 16, value, 8);

typedef struct frt_state_s* frt_state; /* an arena of slots */

typedef struct frt_capsule_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* The layout and the arena; both live as long as the model.  [setup] */
  frt_status (*layout)(void* model, const frt_capsule_layout** layout, frt_error* error);
  frt_status (*state)(void* model, frt_state* state, frt_error* error);
  /* The model's own fields, in a fixed order. Core adds backend, plugin and ABI. May take long on
   * the first call (digests of weight files).  [setup] */
  frt_status (*fingerprint)(void* model, const frt_fingerprint_field** fields, uint64_t* count,
                            frt_error* error);
} frt_capsule_v1;
FRT_ASSERT_LAYOUT(frt_capsule_v1, 32, fingerprint, 24);

/* ---- the host's side ------------------------------------------------------------------- */

/* Host extension: arenas. */
#define FRT_EXT_STATE "frt.state/1"

/* Where things are. The caller sets struct_size. What stands under `counters` changes, the rest
 * does not. */
typedef struct frt_state_info {
  uint32_t struct_size;
  uint32_t slots;
  frt_buffer buffer;    /* the whole arena, device space; borrowed */
  void* pointer;        /* its address */
  uint64_t slot_stride; /* bytes from slot to slot */
  uint64_t fixed_bytes; /* per slot: all FIXED regions with their padding, from offset 0 */
  uint64_t
      block_stride; /* bytes from block to block of a ROWS region; without blocks slot_stride */
  const int32_t* blocks; /* the table, device memory, (slots, slot_blocks); NULL: no blocks */
  uint32_t block_rows;   /* rows of a block; 0: no blocks */
  uint32_t slot_blocks;  /* blocks of a full slot */
  uint32_t total_blocks;
  /* counters */
  uint32_t free_blocks;
  uint32_t shared_blocks; /* with more than one holder: slots and capsules */
  uint32_t reserved;
} frt_state_info;
FRT_ASSERT_LAYOUT(frt_state_info, 80, reserved, 76);

typedef struct frt_state_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* Checks the layout (unique names, sizes > 0, no overflow) and allocates the arena, zeroed. The
   * layout is copied. slots > 0.  [setup] */
  frt_status (*state_create)(frt_context context, const frt_capsule_layout* layout, uint32_t slots,
                             const char* name, frt_state* state, frt_error* error);
  void (*state_release)(frt_state state);                          /* waits  [setup] */
  frt_status (*state_info)(frt_state state, frt_state_info* info); /* [any] */
  /* Bytes from `pointer` to a region: in slot 0, or in block 0 for ROWS of a state with blocks.
   * FRT_ERR_NOT_FOUND: no such name.  [setup] */
  frt_status (*state_region)(frt_state state, const char* name, uint64_t* offset, frt_error* error);
  /* Makes `slot` as new: all FIXED regions zero, its blocks given back. Rows need no clearing:
   * none is valid.  [hot] */
  frt_status (*state_clear)(frt_state state, uint32_t slot, frt_stream stream);
  /* Work that is submitted to `stream` from now on may write the rows [first, end) of `slot`:
   * takes the blocks that are missing up to `end` and brings the table up to date in the order of
   * the stream. Rows that are reserved already cost nothing. FRT_ERR_OUT_OF_RANGE: more rows than a
   * slot has; FRT_ERR_OUT_OF_MEMORY: too few free blocks (release capsules or clear slots);
   * FRT_ERR_BAD_STATE: a capsule or another slot holds rows from `first` on. Nothing has changed
   * then. Without blocks there is nothing to take.
   *
   * A block that is given back (here, by a capsule's release) may be handed out by the next call.
   * So all work on the rows of a state runs on one stream, or on streams ordered by events.
   * [hot] */
  frt_status (*state_reserve)(frt_state state, uint32_t slot, uint64_t first, uint64_t end,
                              frt_stream stream);
} frt_state_v1;
FRT_ASSERT_LAYOUT(frt_state_v1, 56, state_reserve, 48);

FRT_EXTERN_C_END

#endif /* FRT_CAPSULE_H_ */
