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
 * Arena: slot-major. Slot s occupies [s * slot_stride, (s + 1) * slot_stride); in it all FIXED
 * regions come first, in the order given and each aligned to 256 bytes, so that they are one
 * contiguous range; then the ROWS regions. A row is at
 *     pointer + slot * slot_stride + region offset + row * row_bytes.
 *
 * A boundary is a number of rows that is consistent over all regions: FIXED regions hold the state
 * after exactly that many rows.
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
} frt_capsule_layout;
FRT_ASSERT_LAYOUT(frt_capsule_layout, 16, regions, 8);

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

/* Where things are. The caller sets struct_size. */
typedef struct frt_state_info {
  uint32_t struct_size;
  uint32_t slots;
  frt_buffer buffer;    /* the whole arena, device space; borrowed */
  void* pointer;        /* its address */
  uint64_t slot_stride; /* bytes */
  uint64_t fixed_bytes; /* per slot: all FIXED regions with their padding, from offset 0 */
} frt_state_info;
FRT_ASSERT_LAYOUT(frt_state_info, 40, fixed_bytes, 32);

typedef struct frt_state_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* Checks the layout (unique names, sizes > 0, no overflow) and allocates the arena, zeroed. The
   * layout is copied. slots > 0.  [setup] */
  frt_status (*state_create)(frt_context context, const frt_capsule_layout* layout, uint32_t slots,
                             const char* name, frt_state* state, frt_error* error);
  void (*state_release)(frt_state state);                          /* waits  [setup] */
  frt_status (*state_info)(frt_state state, frt_state_info* info); /* [any] */
  /* Offset of a region inside a slot, in bytes. FRT_ERR_NOT_FOUND: no such name.  [setup] */
  frt_status (*state_region)(frt_state state, const char* name, uint64_t* offset, frt_error* error);
  /* Makes `slot` as new: all FIXED regions zero. Rows need no clearing: none is valid.  [hot] */
  frt_status (*state_clear)(frt_state state, uint32_t slot, frt_stream stream);
} frt_state_v1;
FRT_ASSERT_LAYOUT(frt_state_v1, 48, state_clear, 40);

FRT_EXTERN_C_END

#endif /* FRT_CAPSULE_H_ */
