/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/base.h - what every other header of the ABI stands on: versions, status codes, the error
 * record, element types and memory spaces.
 *
 * Rules of the whole ABI (they hold for every header of this folder):
 *
 *  - Every struct that can grow starts with `uint32_t struct_size`, 8 to FRT_STRUCT_MAX in every
 *    version; another one is FRT_ERR_ABI. Structs marked "frozen" never grow and carry no size.
 *      A struct that is passed in: the sender sets struct_size to its own sizeof. A reader copies
 * it once into a local that is zero where the sender's ends, so that a missing member reads as
 *      zero: frt::read_table (frt/table.hpp). Who reads it in place asks FRT_HAS.
 *      A struct that a callee fills ("the caller sets struct_size"): the caller zeroes it and sets
 *      struct_size to its own sizeof. The callee writes at most that many bytes, and sets
 *      struct_size to the bytes that it wrote: frt_fill (below), frt::fill in C++.
 *  - A pointer is never NULL unless its comment says so ("NULL: ...", "may be NULL", of a function
 *    in a table "optional"). An frt_error* may always be NULL.
 *  - What a receiver does not know: senders write 0 to `reserved` and to flags that have no name. A
 *    receiver refuses a flag, a kind or another numbered value that it does not know with
 *    FRT_ERR_UNSUPPORTED, a [hot] call with FRT_ERR_INVALID_ARGUMENT, unless the comment says
 *    "ignored". Where there is a text, it names the member. A status that it does not know is an
 *    error like FRT_ERR_INTERNAL; the text is kept.
 *  - Only fixed-width integers, floats and pointers: no bool, no long, no enum-typed member.
 *  - The side that allocates frees. Strings are UTF-8, zero-terminated, borrowed for the call
 *    unless the declaration says otherwise. Strings in descriptors and tables live as long as the
 *    plugin.
 *  - No exception crosses the ABI and nothing aborts. Setup calls take a caller-owned frt_error
 *    (may be NULL) that says what, where and what to do next; hot calls return the code alone.
 *  - Every function carries one thread tag:
 *      [setup]   one thread at a time per context, not always the same one. May wait, allocate and
 *                log. Work of the context may be in flight, unless the comment says "idle". Without
 *                a context (open, close, device_count, device_info, device_open, device_close, the
 *                report of frt/device_status.h, a model that is created on none): any thread, one
 *                call of the process at a time;
 *      [driver]  one thread at a time per context, as [setup]: the two never run at once;
 *      [hot]     as [driver], and free of allocation, locks, logging and capture;
 *      [object]  any thread, one at a time per object;
 *      [any]     thread-safe.
 *    The tag of a callback says what it may do. A callback in a parameter list has the tag of its
 *    function, unless that says otherwise.
 *  - `sync` in a name: the calling thread waits. `wait`: later work of a stream does.
 *  - Out parameters are written only on FRT_OK. An frt_error is written on errors; a function
 *    that also writes one on FRT_OK says so.
 */
#ifndef FRT_BASE_H_
#define FRT_BASE_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define FRT_EXTERN_C_BEGIN extern "C" {
#define FRT_EXTERN_C_END }
#define FRT_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define FRT_EXTERN_C_BEGIN
#define FRT_EXTERN_C_END
#define FRT_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* Holds the layout of an ABI struct in place: total size, and the offset of its last member. */
#define FRT_ASSERT_LAYOUT(type, size, last_member, last_offset)                              \
  FRT_STATIC_ASSERT(sizeof(type) == (size), #type ": size changed");                         \
  FRT_STATIC_ASSERT(offsetof(type, last_member) == (last_offset), #type ": a member moved"); \
  FRT_STATIC_ASSERT(sizeof(type) - (last_offset) - sizeof(((type*)0)->last_member) < 8,      \
                    #type ": " #last_member " is not the last member")

/* True if the sender of `*pointer` knew `member`: for a struct that is read in place, as in C. A
 * copy that frt::read_table made needs no question: what is missing there is zero. */
#define FRT_HAS(pointer, type, member) \
  ((pointer)->struct_size >= offsetof(type, member) + sizeof(((type*)0)->member))

/* The ABI this header describes. Major: must be equal, and while it is 0 so must minor. From 1.0 on
 * a minor version only adds. */
#define FRT_ABI_MAJOR 0
#define FRT_ABI_MINOR 9

FRT_EXTERN_C_BEGIN

/* ---- status ---------------------------------------------------------------------------- */

/* 0 is success, errors are negative, append-only. frt::status_name (frt/error.hpp) names them. */
typedef int32_t frt_status;

#define FRT_OK 0
#define FRT_ERR_INVALID_ARGUMENT (-1) /* the caller broke a documented rule */
#define FRT_ERR_OUT_OF_MEMORY (-2)    /* a space has no room for the request */
#define FRT_ERR_DEVICE (-3)           /* the device API reported an error; the context goes on */
#define FRT_ERR_NO_VARIANT (-4)       /* the graph has no executable under this key */
#define FRT_ERR_UNBOUND (-5)          /* a required binding of a graph has no buffer */
#define FRT_ERR_UNSUPPORTED (-6)      /* understood, but this build or device cannot do it */
#define FRT_ERR_OUT_OF_RANGE (-7)     /* offset, length, index or position outside its object */
#define FRT_ERR_NOT_FOUND (-8)        /* no such file, tensor, plugin, kernel, name */
#define FRT_ERR_EXISTS (-9)           /* the name or id is taken */
#define FRT_ERR_BAD_STATE (-10)       /* right call, wrong moment (e.g. while capturing) */
#define FRT_ERR_NOT_READY (-11)       /* a query: the work is still in flight */
#define FRT_ERR_ABI (-12)             /* the other side speaks another ABI version */
#define FRT_ERR_DEVICE_LOST (-13)     /* fatal for the context: destroy it, make a new one */
#define FRT_ERR_IO (-14)              /* the operating system refused a file operation */
#define FRT_ERR_FORMAT (-15)          /* bytes that are not what they claim to be */
#define FRT_ERR_MISMATCH (-16)        /* well-formed, but it belongs to something else */
#define FRT_ERR_CYCLE (-17)           /* a plan whose dependencies go in a circle */
#define FRT_ERR_CALLBACK (-18)        /* a callback of the caller failed or threw */
#define FRT_ERR_CANCELLED (-19)       /* stopped because the caller asked for it */
#define FRT_ERR_INTERNAL (-20)        /* a defect: please report it with the message */
#define FRT_STATUS_COUNT 21           /* number of codes above, FRT_OK included */

/* ---- structs that a callee fills ------------------------------------------------------- */

#define FRT_STRUCT_MAX 4096u /* bytes of a struct that can grow, in any version */

/* Fills `out`, a struct whose caller set struct_size, with as much of `known` (`known_size` bytes,
 * the callee's own struct) as there is room for, and sets struct_size to what it wrote. A member
 * that the caller knows and the callee does not stays as it was, zero. FRT_ERR_ABI: a size that no
 * version has; FRT_ERR_INVALID_ARGUMENT: `out` is NULL.  [any] */
static inline frt_status frt_fill(void* out, const void* known, uint32_t known_size) {
  uint32_t size = 0;
  if (!out) return FRT_ERR_INVALID_ARGUMENT;
  memcpy(&size, out, sizeof(size));
  if (size < 2 * sizeof(uint32_t) || size > FRT_STRUCT_MAX) return FRT_ERR_ABI;
  if (size > known_size) size = known_size;
  memcpy(out, known, size);
  memcpy(out, &size, sizeof(size));
  return FRT_OK;
}

/* ---- error record ---------------------------------------------------------------------- */

#define FRT_ERROR_CAPACITY 512

/* Caller-owned; frozen. `message` is UTF-8, zero-terminated, cut at a character if too long. */
typedef struct frt_error {
  frt_status code;
  char message[FRT_ERROR_CAPACITY]; /* "what, where; what to do" without a final full stop */
} frt_error;
FRT_ASSERT_LAYOUT(frt_error, 516, message, 4);

/* ---- element types --------------------------------------------------------------------- */

typedef uint32_t frt_dtype;

#define FRT_DTYPE_NONE 0u
#define FRT_DTYPE_F32 1u
#define FRT_DTYPE_BF16 2u
#define FRT_DTYPE_F16 3u
#define FRT_DTYPE_F8_E4M3 4u /* E4M3FN: bias 7, largest 448, no infinity */
#define FRT_DTYPE_F8_E5M2 5u
#define FRT_DTYPE_F4_E2M1 6u /* two per byte, the even element in the low nibble */
#define FRT_DTYPE_I8 7u
#define FRT_DTYPE_U8 8u
#define FRT_DTYPE_I32 9u
#define FRT_DTYPE_U32 10u
#define FRT_DTYPE_I64 11u
#define FRT_DTYPE_U64 12u
#define FRT_DTYPE_F64 13u
#define FRT_DTYPE_I16 14u
#define FRT_DTYPE_U16 15u
#define FRT_DTYPE_BOOL 16u    /* one byte, 0 or 1 */
#define FRT_DTYPE_F8_E8M0 17u /* 2^(byte - 127), for scales; 255 is NaN */
#define FRT_DTYPE_U4 18u      /* 0 to 15; packed as F4_E2M1 */
#define FRT_DTYPE_I4 19u      /* -8 to 7, two's complement; packed as F4_E2M1 */
#define FRT_DTYPE_COUNT 20u

/* A set of element types, for kernel constraints: FRT_DTYPE_BIT(FRT_DTYPE_BF16) | ... */
typedef uint64_t frt_dtype_set;
#define FRT_DTYPE_BIT(dtype) (UINT64_C(1) << (dtype)) /* dtype must be below 64 */

/* ---- memory spaces --------------------------------------------------------------------- */

typedef uint32_t frt_space;

#define FRT_SPACE_DEVICE 0u      /* the device's own memory */
#define FRT_SPACE_HOST_PINNED 1u /* host memory the device reaches at full link speed */
#define FRT_SPACE_HOST 2u        /* ordinary host memory */
/* One memory that the processor and the device both address, at the same address. Only devices with
 * FRT_DEVICE_SHARED_MEMORY have it; elsewhere it is FRT_ERR_UNSUPPORTED: use device memory and
 * copy. Coherent: the host sees what the device wrote once a sync or an event says that the work is
 * done, and work submitted later sees what the host wrote. Nobody writes bytes that work in flight,
 * or another thread, touches. Nothing else is to be done: no flush, no map. */
#define FRT_SPACE_SHARED 3u
#define FRT_SPACE_COUNT 4u

/* ---- callbacks for variable-length results --------------------------------------------- */

/* Receives `bytes` bytes at `data`, valid during the call; may be called several times per
 * result, each time with whole elements of it, aligned as they must be. Returns FRT_OK to go on;
 * anything else stops the producer, which returns that code. Called on the thread of the call that
 * it was given to, before that returns. A sink calls nothing of the table that calls it.
 * [as that call] */
typedef frt_status (*frt_sink)(void* user, const void* data, uint64_t bytes);

FRT_EXTERN_C_END

#endif /* FRT_BASE_H_ */
