/* SPDX-License-Identifier: Apache-2.0 */
/* frt/progress.h - long work reports how far it is: weights in bytes, graphs in variants. The host
 * draws bars on a terminal, and may ask the work to stop. */
#ifndef FRT_PROGRESS_H_
#define FRT_PROGRESS_H_

#include <frt/base.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_PROGRESS "frt.progress/1"

#define FRT_PROGRESS_ITEMS 0u
#define FRT_PROGRESS_BYTES 1u

typedef struct frt_progress_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  void* self;
  /* Reports `done` of `total` (0: unknown) in `phase` ("weights", "capture"). A phase starts with
   * its first report and ends when done == total. Returns FRT_OK, or FRT_ERR_CANCELLED: then the
   * caller stops, cleans up and returns that code. Cheap: at most some hundred per second are
   * drawn.  [any] */
  frt_status (*report)(void* self, const char* phase, uint32_t unit, uint64_t done, uint64_t total);
} frt_progress_v1;
FRT_ASSERT_LAYOUT(frt_progress_v1, 24, report, 16);

FRT_EXTERN_C_END

#endif /* FRT_PROGRESS_H_ */
