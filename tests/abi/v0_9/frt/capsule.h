/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/capsule.h - the state of a model: its layout, the arena of slots that holds it, and capsules:
 * immutable copies of one slot at a boundary, to be restored, forked, kept and stored.
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
 *   page_rows = 0: slot-major. The ROWS regions follow the FIXED ones of their slot, and
 *     row r of slot s is at    pointer + region + s * slot_stride + r * row_bytes.
 *
 *   page_rows > 0: in pages, behind the FIXED ranges of all slots. A page has room for
 *     page_rows rows of every ROWS region, region after region, and belongs to nobody until a slot
 *     reserves it. A table in device memory says which page a slot's rows are in:
 *     page = page_table[s * slot_pages + r / page_rows];  row r of slot s is at
 *     pointer + region + page * page_stride + (r % page_rows) * row_bytes
 *
 * Pages are shared: a forked or restored slot reads the rows of its prefix where they are, so
 * neither costs more for a longer prefix. A page that more than one holder reads is written by
 * none, or by one behind the rows that the others read.
 *
 * Who writes rows of a slot has reserved them before (state_reserve). With pages, entries of the
 * table for rows that are not reserved are -1: operators store nothing there.
 */
#ifndef FRT_CAPSULE_H_
#define FRT_CAPSULE_H_

#include <frt/base.h>
#include <frt/exec.h>
#include <frt/model.h>

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
  int64_t row_lag; /* ROWS: boundary - row_lag rows are valid, usually 0. At least -max_rows; with
                      pages not negative */
} frt_region;
FRT_ASSERT_LAYOUT(frt_region, 40, row_lag, 32);

typedef struct frt_capsule_layout {
  uint32_t struct_size;
  uint32_t region_count;
  const frt_region* regions; /* [region_count] */
  uint32_t page_rows;        /* rows of a page, a power of two; 0: no pages */
  uint32_t spare_pages;      /* pages beyond those that full slots need: room for prefixes that
                                 are kept and are in no slot any more */
} frt_capsule_layout;
FRT_ASSERT_LAYOUT(frt_capsule_layout, 24, spare_pages, 20);

/* ---- the plugin's side ----------------------------------------------------------------- */

/* Extension of a model object (frt/model.h): what a capsule of this model consists of. */
#define FRT_EXT_CAPSULE "frt.capsule/1"

#define FRT_FINGERPRINT_STATE "state" /* the field with the version of the state, e.g. "1" */

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
  /* The layout; lives as long as the model.  [setup] */
  frt_status (*layout)(frt_model model, const frt_capsule_layout** layout, frt_error* error);
  /* The arena; lives as long as the model.  [setup] */
  frt_status (*state)(frt_model model, frt_state* state, frt_error* error);
  /* The model's own fields, in a fixed order: identity (see frt.capsules/1). All that the meaning
   * of the state depends on beside the layout is in them: weights, configuration, formats, options,
   * and in FRT_FINGERPRINT_STATE a version of the state, which the model raises when the same
   * regions begin to mean something else; a host warns of a model without that field. Core adds
   * backend, plugin and ABI, and which builds they are. May take long on the first call (digests of
   * weight files).  [setup] */
  frt_status (*fingerprint)(frt_model model, const frt_fingerprint_field** fields, uint64_t* count,
                            frt_error* error);
} frt_capsule_v1;
FRT_ASSERT_LAYOUT(frt_capsule_v1, 32, fingerprint, 24);

/* ---- the host's side ------------------------------------------------------------------- */

/* Host extension: arenas. */
#define FRT_EXT_STATE "frt.state/1"

/* Where things are. The caller sets struct_size. The counters change, the rest does not. */
typedef struct frt_state_info {
  uint32_t struct_size;
  uint32_t slots;
  frt_buffer buffer;    /* the whole arena, in shared memory where the device has it
                           (FRT_SPACE_SHARED), else in device memory; borrowed */
  void* pointer;        /* its address */
  uint64_t slot_stride; /* bytes from slot to slot */
  uint64_t fixed_bytes; /* per slot: all FIXED regions with their padding, from offset 0 */
  uint64_t page_stride; /* bytes from page to page of a ROWS region; without pages slot_stride */
  const int32_t* page_table; /* device memory, (slots, slot_pages); NULL: no pages */
  uint32_t page_rows;        /* rows of a page; 0: no pages */
  uint32_t slot_pages;       /* pages of a full slot */
  uint32_t total_pages;
  uint32_t free_pages;   /* counter */
  uint32_t shared_pages; /* counter: with more than one holder: slots and capsules */
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
  /* Bytes from `pointer` to a region: in slot 0, or in page 0 for ROWS of a state with pages.
   * FRT_ERR_NOT_FOUND: no such name.  [setup] */
  frt_status (*state_region)(frt_state state, const char* name, uint64_t* offset, frt_error* error);
  /* Makes `slot` as new: all FIXED regions zero, its pages given back. Rows need no clearing:
   * none is valid.  [hot] */
  frt_status (*state_clear)(frt_state state, uint32_t slot, frt_stream stream);
  /* Work that is submitted to `stream` from now on may write the rows [first, end) of `slot`:
   * takes the pages that are missing up to `end` and brings the table up to date in the order of
   * the stream; without pages only notes the rows. FRT_ERR_OUT_OF_RANGE: more rows than a slot
   * has, or `first` is beyond those that it was restored with or that were reserved since;
   * FRT_ERR_OUT_OF_MEMORY: too few free pages (release capsules or clear slots);
   * FRT_ERR_BAD_STATE: others hold rows from `first` on. Nothing has changed then.
   *
   * Work on the rows of a slot, and of those that share them, runs on one stream, or on streams
   * ordered by events. Pages that are given back go to other streams behind the work before.
   * [hot] */
  frt_status (*state_reserve)(frt_state state, uint32_t slot, uint64_t first, uint64_t end,
                              frt_stream stream);
} frt_state_v1;
FRT_ASSERT_LAYOUT(frt_state_v1, 56, state_reserve, 48);

/* ---- capsules -------------------------------------------------------------------------- */

/*
 * A capsule is what a slot held at one boundary. It never changes, whatever becomes of the slot:
 *
 *   snapshot   slot -> capsule                 fork       capsule -> several slots
 *   restore    capsule -> slot                 fork_slot  slot -> several slots, nothing kept
 *   copy       capsule -> capsule in another space (then release the first to have it moved)
 *   save       capsule -> file                 load       file -> capsule
 *
 * Restoring an earlier capsule of the same line of work is how to go back in time.
 *
 * Every verb that touches the arena is ONE submission of copies to the stream it is given (one per
 * FRT_COPY_BATCH_MAX ranges), ordered behind what the stream holds; it returns before the work is
 * done. Only what is valid is copied, the FIXED regions and of each ROWS region the first boundary
 * - row_lag rows; between pages of one device, the last page as a whole. Other streams need
 * no order: each verb waits, on its stream, for the last verb that used the capsule. `query` and
 * `sync` tell the host when the last verb is done.
 *
 * Payload: the bytes of a capsule, the same in every space and in files:
 *   all FIXED regions, fixed_bytes long | each page of which every row is valid, as a whole |
 *   of each ROWS region, in the order given, its valid rows that are in no such page
 * Without pages (page_rows 0) the last part is all rows.
 *
 * Space: FRT_SPACE_DEVICE is where the arena is. Where that is shared memory (frt_capsule_info says
 * FRT_SPACE_SHARED), such a capsule is read, saved and loaded in place, without a copy.
 *
 * With pages a capsule where the arena is holds the pages of its rows by reference and copies
 * the FIXED regions alone; so does a slot that is restored from it, but for the rows of the last
 * page, which it gets its own of. The cost does not depend on the number of rows. A slot may not
 * go back behind a boundary that a capsule holds (state_reserve); and the rule that all work on the
 * rows of a state is on one stream, or on ordered ones, holds for verbs, too.
 *
 * Memory: capsules live in slabs of equal size, taken from a store that the arena keeps per
 * space. Slabs of a released capsule are used again. A snapshot that finds too few takes more from
 * the backend, which is slow for pinned memory; `reserve` does that beforehand. How many capsules
 * to keep, and where, is the host's decision; the store never drops one.
 *
 * Ownership: a capsule belongs to the caller until `release`, and keeps its arena alive.
 *
 * Files: CAPSULE_FORMAT.md of the installed SDK (share/frt-sdk) publishes the format. A file is
 * named by a folder, which the host trusts, and a name, which it need not trust:
 * FRT_CAPSULE_NAME_RULE; the file is NAME.capsule in that folder. Files are 0600, folders made here
 * 0700; links are not followed. A save that returned FRT_OK is on the disk; before that nothing of
 * that name is visible, or what was there before. Loading verifies every byte before the capsule
 * can be used.
 *
 * Fingerprint: what a capsule is of, in two parts.
 *   Identity must be equal for a file to fit: core's fields (ABI, arena layout), the ids of backend
 *   and plugin, the fields of the model. FRT_ERR_MISMATCH names the field, what is expected and
 *   what was found.
 *   Builds are the fields whose names begin with FRT_FINGERPRINT_BUILD: version and digest of the
 *   files of backend and plugin, the architecture of the device, what else of the device, its
 *   driver and its libraries decides roundings (`numerics` of frt_device_info), and the values of
 *   the options of backend and device that do (FRT_OPTION_NUMERICS of frt/config.h). Other builds
 *   compute the same in other roundings. A file of another build is loaded, checked as any other,
 *   and `other_build` of frt_capsule_info says so: what continues from it may differ from what that
 *   build would have gone on with. A host that promises equal bits does not use it unasked.
 *   A slot that is restored from such a capsule stays of two builds until it is cleared or restored
 *   from another capsule: so are its snapshots and forks, and the files of these have
 *   the additional field FRT_FINGERPRINT_CONTINUES: every reader treats them as another build's.
 */
#define FRT_EXT_CAPSULES "frt.capsules/1"

typedef struct frt_capsule_s* frt_capsule;

#define FRT_CAPSULE_NAME_RULE "[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"

#define FRT_FINGERPRINT_BUILD "build." /* how names of fields begin that only tell builds apart */
/* The digest of the builds of what a state goes on from. Core's own: not for bind. */
#define FRT_FINGERPRINT_CONTINUES FRT_FINGERPRINT_BUILD "continues"

/* Flags of save. */
#define FRT_CAPSULE_REPLACE 1u /* a file of that name is replaced, else FRT_ERR_EXISTS */

/* The caller sets struct_size. */
typedef struct frt_capsule_info {
  uint32_t struct_size;
  frt_space space;
  frt_state state; /* borrowed */
  uint64_t boundary;
  uint64_t bytes;        /* of the payload */
  uint64_t held_bytes;   /* memory that is its own: whole slabs */
  uint64_t shared_bytes; /* pages that it holds, alone or with slots and other capsules */
  /* Another build computed it or a part of it: it was loaded from a file of that build, or taken
   * from a slot that goes on from such a capsule. A line for each field that differs: its name, a
   * colon, and words for people. NULL: this build. Lives as long as the capsule; copies say the
   * same, and files that it is saved to. */
  const char* other_build;
} frt_capsule_info;
FRT_ASSERT_LAYOUT(frt_capsule_info, 56, other_build, 48);

/* The store of one arena in one space. The caller sets struct_size. */
typedef struct frt_capsule_usage {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t slab_bytes;
  uint64_t used_bytes; /* in slabs of living capsules */
  uint64_t free_bytes; /* in slabs that wait for the next one */
} frt_capsule_usage;
FRT_ASSERT_LAYOUT(frt_capsule_usage, 32, free_bytes, 24);

typedef struct frt_capsules_v1 {
  uint32_t struct_size;
  uint32_t reserved;

  /* ---- memory ---- */
  /* Room for `count` more capsules at `boundary`, so that later snapshots, copies and loads into
   * `space` take neither memory nor an event from the backend. Slow: pinning takes about a second
   * for 10 GB.  [setup] */
  frt_status (*reserve)(frt_state state, frt_space space, uint64_t boundary, uint32_t count,
                        frt_error* error);
  /* Gives free slabs back to the backend; waits for work in flight.  [setup] */
  void (*trim)(frt_state state, frt_space space);
  frt_status (*usage)(frt_state state, frt_space space, frt_capsule_usage* usage); /* [driver] */

  /* ---- verbs on slots ---- */
  /* The slot is not changed; it may be written to at once, in stream order. Boundary 0 is a
   * capsule of the FIXED regions alone. FRT_ERR_OUT_OF_RANGE: no such slot, or a boundary beyond
   * its own rows (state_reserve). FRT_ERR_OUT_OF_MEMORY: with numbers; nothing is kept. [driver] */
  frt_status (*snapshot)(frt_state state, uint32_t slot, uint64_t boundary, frt_space space,
                         frt_stream stream, frt_capsule* capsule, frt_error* error);
  /* The slot holds what the capsule holds; its rows beyond are undefined. FRT_ERR_NOT_READY: the
   * capsule is not loaded to its end. FRT_ERR_OUT_OF_MEMORY: too few free pages; the slot
   * is to be cleared or restored before it is used.  [hot] */
  frt_status (*restore)(frt_capsule capsule, uint32_t slot, frt_stream stream);
  /* Restores `count` different slots at once. After FRT_ERR_OUT_OF_MEMORY (too few pages) the
   * slots are to be cleared or restored before they are used.  [hot] */
  frt_status (*fork)(frt_capsule capsule, const uint32_t* slots, uint32_t count, frt_stream stream);
  /* The same from a slot at `boundary`, which is none of `slots`.  [hot] */
  frt_status (*fork_slot)(frt_state state, uint32_t slot, uint64_t boundary, const uint32_t* slots,
                          uint32_t count, frt_stream stream);

  /* ---- verbs on capsules ---- */
  /* A second capsule of the same content in `space`; independent of the first.  [driver] */
  frt_status (*copy)(frt_capsule capsule, frt_space space, frt_stream stream, frt_capsule* made,
                     frt_error* error);
  frt_status (*info)(frt_capsule capsule, frt_capsule_info* info); /* [any] */
  /* FRT_OK: every verb submitted with this capsule is done, FRT_ERR_NOT_READY: not yet. [hot] */
  frt_status (*query)(frt_capsule capsule);
  frt_status (*sync)(frt_capsule capsule); /* until query says FRT_OK  [driver] */
  /* Its memory is used again after the last verb with it. NULL is ignored.  [driver] */
  void (*release)(frt_capsule capsule);
  /* Gives the payload to `sink` in parts. Host and shared spaces; the capsule is ready (query).
   * [any] */
  frt_status (*read)(frt_capsule capsule, frt_sink sink, void* user, frt_error* error);

  /* ---- fingerprint ---- */
  /* Sets the fields of host and model, once per arena, else FRT_ERR_EXISTS. Names are unique; up to
   * 24 are of builds: printable lines of up to 256 bytes, no FRT_FINGERPRINT_CONTINUES.  [setup] */
  frt_status (*bind)(frt_state state, const frt_fingerprint_field* fields, uint64_t count,
                     frt_error* error);
  /* All fields, core's own too, in order; they live as long as the arena. The first call checks
   * them, and may take long: digests of weights. FRT_ERR_BAD_STATE: none are bound.  [setup] */
  frt_status (*fingerprint)(frt_state state, const frt_fingerprint_field** fields, uint64_t* count,
                            frt_error* error);

  /* ---- files ---- */
  /* Writes the capsule and `metadata` (opaque bytes of the host, at most 64 MiB; may be NULL) to
   * a file. The capsule is in a host or shared space (copy() it first) and ready; `fingerprint` was
   * called before. Makes the folder if it is missing (not its parents). Refuses a folder that
   * others may write to. FRT_ERR_EXISTS, FRT_ERR_IO with the reason; then nothing is left behind
   * (but a new file that replaced another, if only the very last flush of the folder failed). [any]
   */
  frt_status (*save)(frt_capsule capsule, const char* folder, const char* name,
                     const void* metadata, uint64_t metadata_bytes, uint32_t flags,
                     frt_error* error);
  /* Opens a file, checks all of it but the payload, and takes memory in a host or shared space. The
   * capsule can be used after load_finish. `metadata` (may be NULL) receives the host's bytes.
   * FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT (damaged: where), FRT_ERR_MISMATCH (the field of the
   * identity). A file of another build is no error: see other_build.  [driver] */
  frt_status (*load_begin)(frt_state state, const char* folder, const char* name, frt_space space,
                           frt_sink metadata, void* user, frt_capsule* capsule, frt_error* error);
  /* Reads the payload and verifies each chunk. Long; the driver may go on with other work. After an
   * error the capsule can only be released.  [object] */
  frt_status (*load_finish)(frt_capsule capsule, frt_error* error);
  /* Checks the whole file, without an arena.  [any] */
  frt_status (*verify)(const char* folder, const char* name, frt_error* error);
  /* Checks the file but its payload; gives its manifest (JSON) and the host's bytes. Either sink
   * may be NULL.  [any] */
  frt_status (*describe)(const char* folder, const char* name, frt_sink manifest,
                         void* manifest_user, frt_sink metadata, void* metadata_user,
                         frt_error* error);
  /* Calls `sink` with each name that has a file, one name a call, in no order. A missing folder has
   * none.  [any] */
  frt_status (*list)(const char* folder, frt_sink sink, void* user, frt_error* error);
  frt_status (*remove)(const char* folder, const char* name, frt_error* error); /* [any] */
  /* Removes what writers that died have left; never the file of a living one.  [any] */
  frt_status (*sweep)(const char* folder, uint64_t* removed, frt_error* error);
} frt_capsules_v1;
FRT_ASSERT_LAYOUT(frt_capsules_v1, 192, sweep, 184);

FRT_EXTERN_C_END

#endif /* FRT_CAPSULE_H_ */
