/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/kernels.h - operators: how they are named, registered, found and called.
 *
 * An operator has a name with a revision ("frt.rms_norm/1") and ONE argument struct, declared in
 * frt/ops/. A kernel is a backend's implementation of an operator, for the element types it
 * names. A backend registers its kernels in FRT_EXT_KERNELS; a model plugin may add kernels of
 * its own for a backend whose native_kind it knows.
 *
 * An argument struct is frozen with the revision of its operator; a change is a new revision. Its
 * struct_size only catches mistakes.
 *
 * A model resolves all the kernels it needs in one call at load (frt_exec_v1::kernels_resolve);
 * every missing name is reported at once. A leading '?' marks an optional one. Calling a kernel
 * submits it to a stream: eager streams run it, capturing streams record it. The arguments are
 * read during the call; the memory they point to is read and written when the work runs. Memory,
 * and strides in bytes, are aligned to their elements.
 */
#ifndef FRT_KERNELS_H_
#define FRT_KERNELS_H_

#include <frt/backend.h>
#include <frt/base.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_KERNELS "frt.kernels/1"

/* ---- weight formats -------------------------------------------------------------------- */

/* How the values of a matrix are stored. W is (rows = outputs, cols = inputs), row-major. */
typedef uint32_t frt_weight_format;

#define FRT_WEIGHT_F32 0u
#define FRT_WEIGHT_BF16 1u
/* e4m3(data) * scale[row / block_rows, col / block_cols] */
#define FRT_WEIGHT_FP8_BLOCK 2u
#define FRT_WEIGHT_FP8_TENSOR 3u  /* e4m3(data) * global_scale */
#define FRT_WEIGHT_FP8_CHANNEL 4u /* e4m3(data) * scale[row] */
/* e2m1(data) * e4m3(scale[row, col / 16]) * global_scale; two values per byte, even one low */
#define FRT_WEIGHT_NVFP4 5u
#define FRT_WEIGHT_FORMAT_COUNT 6u

typedef uint32_t frt_weight_set; /* of (1u << format) */
#define FRT_WEIGHT_BIT(format) (1u << (format))
#define FRT_WEIGHT_ALL (FRT_WEIGHT_BIT(FRT_WEIGHT_FORMAT_COUNT) - 1u)

/* One weight matrix in device memory; frozen. Memory is borrowed. */
typedef struct frt_weight {
  frt_weight_format format;
  frt_dtype scale_dtype;          /* FP8_BLOCK, FP8_CHANNEL: F32 or BF16; NVFP4: F8_E4M3 */
  int32_t rows, cols;             /* outputs, inputs */
  const void* data;               /* (rows, cols) row-major, packed; aligned to 16 bytes */
  const void* scale;              /* (ceil(rows/block_rows), ceil(cols/block_cols)), (rows) or
                                     (rows, cols/16); NULL where the format has none */
  int32_t block_rows, block_cols; /* FP8_BLOCK only */
  float global_scale;             /* FP8_TENSOR, NVFP4: multiplied; 1 otherwise */
  uint32_t layout;                /* 0: row-major as stated; others are a backend's own packing */
} frt_weight;
FRT_ASSERT_LAYOUT(frt_weight, 48, layout, 44);

/* ---- a callable kernel ----------------------------------------------------------------- */

/* Frozen. Lives as long as the backend. */
typedef struct frt_kernel {
  void* self;
  /* Checks `args` (first member: uint32_t struct_size) and submits. Same checks in eager and in
   * capture; a message names the operator and the argument. FRT_ERR_INVALID_ARGUMENT: the arguments
   * break a rule of the operator, or a weight has a format that frt_kernel_desc does not name.
   * FRT_ERR_UNSUPPORTED: the kernel lacks something that frt_kernel_desc cannot say (a size, the
   * type of keys and values).  [driver]; [hot] where the backend says so for eager streams. */
  frt_status (*launch)(void* self, frt_backend_stream stream, const void* args, frt_error* error);
} frt_kernel;
FRT_ASSERT_LAYOUT(frt_kernel, 16, launch, 8);

/* ---- registration ---------------------------------------------------------------------- */

typedef struct frt_kernel_desc {
  uint32_t struct_size;
  uint32_t args_size;        /* sizeof the argument struct it was built with */
  const char* name;          /* "vendor.op/revision" */
  frt_dtype_set activations; /* activation types it takes; 0: it has none, and fits them all */
  frt_weight_set weights;    /* weight formats it takes; 0: it has none, and fits them all */
  frt_kernel kernel;
} frt_kernel_desc;
FRT_ASSERT_LAYOUT(frt_kernel_desc, 40, kernel, 24);

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
