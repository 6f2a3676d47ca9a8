/* SPDX-License-Identifier: Apache-2.0 */
/* frt/ops/checksum.h - reads memory and nothing else: a digest for comparing buffers, and the probe
 * of a device's read bandwidth, which is the floor of everything that streams weights. */
#ifndef FRT_OPS_CHECKSUM_H_
#define FRT_OPS_CHECKSUM_H_

#include <frt/kernels.h>

FRT_EXTERN_C_BEGIN

/* y = the exclusive or of all 64-bit words of x. Every byte is read once. */
#define FRT_OP_CHECKSUM "frt.checksum/1"
typedef struct frt_checksum_args {
  uint32_t struct_size;
  uint32_t reserved;
  const void* x;  /* aligned to 8 bytes */
  uint64_t bytes; /* a multiple of 8; 0: y = 0 */
  uint64_t* y;    /* (1) */
} frt_checksum_args;
FRT_ASSERT_LAYOUT(frt_checksum_args, 32, y, 24);

FRT_EXTERN_C_END

#endif /* FRT_OPS_CHECKSUM_H_ */
