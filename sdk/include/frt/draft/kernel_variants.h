/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/draft/kernel_variants.h - which kernels a backend selects from for each operator, what each
 * needs of a device, and how often each was launched. Hosts show the list to people; a conformance
 * run says which variant computed a case and which one no case reached.
 *
 * A draft (VERSIONING.md): it may change. The number at the end of the id grows with each
 * change.
 */
#ifndef FRT_DRAFT_KERNEL_VARIANTS_H_
#define FRT_DRAFT_KERNEL_VARIANTS_H_

#include <frt/backend.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_KERNEL_VARIANTS "frt.kernel-variants/draft1"

/* One variant of an operation. The texts are UTF-8 and live until device_close. */
typedef struct frt_kernel_variant {
  const char* operation; /* an operator, "frt.linear/1", or a part that several share, "gemm" */
  const char* name;      /* unique in the operation: "wgmma" */
  const char* needs;     /* for people: "wgmma, 196608 bytes of shared memory"; "": nothing */
  uint64_t launches;     /* since device_open: submissions to eager and to capturing streams */
  uint32_t offered;      /* 1: some arguments reach it on this device, with its options: the device
                          * has what it needs, and no earlier one supports all arguments */
  uint32_t reserved;
} frt_kernel_variant;
FRT_ASSERT_LAYOUT(frt_kernel_variant, 40, offered, 32);

/* An optional extension of a backend plugin. Frozen for its id. */
typedef struct frt_kernel_variants_draft {
  uint32_t struct_size;
  uint32_t reserved;
  /* The number of variants of an opened device. It stays the same until device_close.  [any] */
  uint32_t (*count)(frt_backend_device device);
  /* Fills `variant` with the one at `index`. Variants of one operation follow each other in the
   * order in which the backend prefers them: it launches the first one that is offered and that
   * supports the arguments. FRT_ERR_OUT_OF_RANGE beyond count(). May load libraries.  [driver] */
  frt_status (*read)(frt_backend_device device, uint32_t index, frt_kernel_variant* variant,
                     frt_error* error);
} frt_kernel_variants_draft;
FRT_ASSERT_LAYOUT(frt_kernel_variants_draft, 24, read, 16);

FRT_EXTERN_C_END

#endif /* FRT_DRAFT_KERNEL_VARIANTS_H_ */
