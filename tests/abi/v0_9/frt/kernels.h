/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/kernels.h - operators: how they are named, registered, found and called.
 *
 * An operator has a name with a revision ("frt.rms_norm/1") and ONE argument struct, declared in
 * frt/ops/. A kernel is a backend's implementation of an operator, for the element types and
 * weight formats it names. A backend registers its kernels in FRT_EXT_KERNELS; a model plugin may
 * add kernels of its own for a backend whose native_kind it knows.
 *
 * An argument struct is frozen with the revision of its operator; a change is a new revision. Its
 * struct_size only catches mistakes.
 *
 * A model resolves all the kernels it needs in one call at load (frt_exec_v1::kernels_resolve);
 * every missing name is reported at once. A leading '?' marks an optional one. Calling a kernel
 * submits it to a stream: eager streams run it, capturing streams record it. The arguments are
 * read during the call; the memory they point to is read and written when the work runs.
 *
 * Every launch refuses with FRT_ERR_INVALID_ARGUMENT: a NULL pointer that the comment of its member
 * does not allow; rows below 0, or below 1 where the operator's header says "at least 1"; another
 * size below 1, or below what its comment allows ("0: ..."); memory that is not aligned to its
 * elements; a stride in bytes that is not a multiple of the element's size (4 for f32 and int32); a
 * stride that is shorter than its row, or than what a slot has; a shape of 2^61 bytes or more; and
 * what the operator's header rules out. frt/operator_checks.hpp checks all of this, for each
 * operator of frt/ops/. Members that the other arguments leave without a use are not checked.
 */
#ifndef FRT_KERNELS_H_
#define FRT_KERNELS_H_

#include <frt/backend.h>
#include <frt/base.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_KERNELS "frt.kernels/1"

/* ---- weight formats -------------------------------------------------------------------- */

/* How a weight matrix is stored; frozen, compared as bytes. W is (rows = outputs, cols = inputs):
 *
 *   W[r, c] = global_scale * S * (data[r, c] - Z)
 *   S = scale[r / group_rows, c / group_cols]                 1 where `scale` is FRT_DTYPE_NONE
 *   Z = zero[r / group_rows, c / group_cols]                  0 where `zero` is FRT_DTYPE_NONE
 *
 * `data`, `scale` and `zero` are matrices of the element types named here, row-major, each row
 * from a byte of its own on: a row of n elements of b bits takes ceil(n * b / 8) bytes. Four-bit
 * elements lie two in a byte, the even one in the low nibble. The last group of a side may be
 * short. So with g = group_rows or rows, h = group_cols or cols:
 *
 *   data  (rows, cols)                                 F32, BF16, F8_E4M3, F4_E2M1, U4, I4, U8, I8
 *   scale (ceil(rows / g), ceil(cols / h))             F32, BF16, F16, F8_E4M3, F8_E8M0
 *   zero  (ceil(rows / g), ceil(cols / h))             the type of data or of scale
 *
 * A backend may take other types: what it takes is in frt_kernel_desc.
 *
 *                     data     scale    zero  rows  cols  flags
 *   FP8 in blocks     F8_E4M3  F32      NONE  128   128   0             DeepSeek, Qwen
 *   NVFP4             F4_E2M1  F8_E4M3  NONE  1     16    GLOBAL_SCALE  compressed-tensors
 *   MXFP4             F4_E2M1  F8_E8M0  NONE  1     32    0             OCP microscaling
 *   int8              I8       F32      NONE  1     0     0             one scale per output
 *   int4, symmetric   U4       F16      NONE  1     128   MIDPOINT_ZERO compressed-tensors, GPTQ
 *   int4 with zeros   U4       F16      U4    1     128   0             AWQ, GPTQ
 *   int4 with floats  U4       F16      F16   1     64    0             HQQ
 *
 * Scales of NVFP4 are finite and not negative: products of FP4 by FP4 in hardware read no sign.
 *
 * AWQ and GPTQ store the transposed matrix in words of eight values, AWQ's in the order 0 2 4 6 1 3
 * 5 7, GPTQ's zeros less one: who loads them repacks them. A format whose scales lie between its
 * data, as GGUF's blocks do, is a layout of its own. */
typedef struct frt_weight_format {
  frt_dtype data;
  frt_dtype scale;     /* FRT_DTYPE_NONE: has none */
  frt_dtype zero;      /* FRT_DTYPE_NONE: has none */
  uint32_t group_rows; /* rows that share a scale and a zero point; 0: all of them */
  uint32_t group_cols; /* the same of columns; both 0 where there are neither */
  uint32_t layout;     /* 0: as stated above; 1 to 65535: of this header; above: a vendor's own */
  uint32_t flags;      /* FRT_WEIGHT_GLOBAL_SCALE, ... */
} frt_weight_format;
FRT_ASSERT_LAYOUT(frt_weight_format, 28, flags, 24);

/* frt_weight::global_scale counts; without it, it is not read and means 1. */
#define FRT_WEIGHT_GLOBAL_SCALE 1u
/* The zero point is the midpoint of the range of unsigned data: Z = 8 for U4, 128 for U8. `zero` is
 * FRT_DTYPE_NONE. */
#define FRT_WEIGHT_MIDPOINT_ZERO 2u

/* In a member of a kernel's pattern: fits every value. */
#define FRT_WEIGHT_ANY 0xffffffffu

/* Initialisers of the formats that models of today have. */
#define FRT_WEIGHT_F32 \
  { FRT_DTYPE_F32, FRT_DTYPE_NONE, FRT_DTYPE_NONE, 0, 0, 0, 0 }
#define FRT_WEIGHT_BF16 \
  { FRT_DTYPE_BF16, FRT_DTYPE_NONE, FRT_DTYPE_NONE, 0, 0, 0, 0 }
#define FRT_WEIGHT_FP8_TENSOR \
  { FRT_DTYPE_F8_E4M3, FRT_DTYPE_NONE, FRT_DTYPE_NONE, 0, 0, 0, FRT_WEIGHT_GLOBAL_SCALE }
#define FRT_WEIGHT_FP8_CHANNEL(scale) \
  { FRT_DTYPE_F8_E4M3, scale, FRT_DTYPE_NONE, 1, 0, 0, 0 }
#define FRT_WEIGHT_FP8_BLOCK(scale, rows, cols) \
  { FRT_DTYPE_F8_E4M3, scale, FRT_DTYPE_NONE, rows, cols, 0, 0 }
/* cols: a multiple of 16 */
#define FRT_WEIGHT_NVFP4 \
  { FRT_DTYPE_F4_E2M1, FRT_DTYPE_F8_E4M3, FRT_DTYPE_NONE, 1, 16, 0, FRT_WEIGHT_GLOBAL_SCALE }
#define FRT_WEIGHT_MXFP4 \
  { FRT_DTYPE_F4_E2M1, FRT_DTYPE_F8_E8M0, FRT_DTYPE_NONE, 1, 32, 0, 0 }

/* One weight matrix in device memory; frozen. Memory is borrowed. */
typedef struct frt_weight {
  frt_weight_format format;
  int32_t rows, cols; /* outputs, inputs */
  float global_scale; /* with FRT_WEIGHT_GLOBAL_SCALE */
  const void* data;   /* shapes: see frt_weight_format; aligned to 16 bytes */
  const void* scale;  /* aligned to its elements; NULL where the format has none */
  const void* zero;   /* the same */
} frt_weight;
FRT_ASSERT_LAYOUT(frt_weight, 64, zero, 56);

/* ---- a callable kernel ----------------------------------------------------------------- */

/* Frozen. Lives as long as the backend. */
typedef struct frt_kernel {
  void* self;
  /* Checks `args` (first member: uint32_t struct_size) and submits. Same checks in eager and in
   * capture; a message names the operator and the argument. FRT_ERR_INVALID_ARGUMENT: the arguments
   * break a rule of the operator, or a weight has a format that frt_kernel_desc does not name.
   * FRT_ERR_UNSUPPORTED: the kernel lacks something that frt_kernel_desc cannot say (a size, the
   * type of keys and values).  [driver] */
  frt_status (*launch)(void* self, frt_backend_stream stream, const void* args, frt_error* error);
  /* What launch would answer to `args`, without submitting: FRT_OK, FRT_ERR_UNSUPPORTED, or another
   * error of its checks. Reads no memory of the device. NULL: only launch can tell.  [driver] */
  frt_status (*supports)(void* self, const void* args, frt_error* error);
} frt_kernel;
FRT_ASSERT_LAYOUT(frt_kernel, 24, supports, 16);

/* ---- registration ---------------------------------------------------------------------- */

/* A kernel fits a request (frt_exec_v1::kernels_resolve) when `inputs` and `outputs` hold every
 * type that the request names, and when for each weight format of the request one of `weights`
 * fits. */
typedef struct frt_kernel_desc {
  uint32_t struct_size;
  /* sizeof the argument struct that the kernel was built with. The host does not read it;
   * frt-plugin-check does, and compares it with the struct of frt/ops/. */
  uint32_t args_size;
  const char* name;                 /* "vendor.op/revision" */
  frt_dtype_set inputs;             /* types of the activations it reads; 0: it reads none, and fits
                                       every request */
  frt_dtype_set outputs;            /* types of those it writes; 0: it writes none, and fits every
                                       request */
  const frt_weight_format* weights; /* patterns; NULL: it has no weights, and fits every request */
  uint32_t weight_count;
  uint32_t reserved;
  frt_kernel kernel;
} frt_kernel_desc;
FRT_ASSERT_LAYOUT(frt_kernel_desc, 72, kernel, 48);

/* The plugin's table. */
typedef struct frt_kernels_v1 {
  uint32_t struct_size;
  uint32_t stride; /* bytes from one frt_kernel_desc to the next */
  /* The kernels of an opened device; the array lives until device_close. Later entries of the
   * same name win where both fit (a tuned kernel after a general one).  [setup] */
  frt_status (*list)(frt_backend_device device, const frt_kernel_desc** kernels, uint64_t* count,
                     frt_error* error);
} frt_kernels_v1;
FRT_ASSERT_LAYOUT(frt_kernels_v1, 16, list, 8);

FRT_EXTERN_C_END

#endif /* FRT_KERNELS_H_ */
