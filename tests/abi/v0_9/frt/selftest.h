/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/selftest.h - a model checks itself against golden tensors: an extension of a model object.
 * It runs the same recipes that serve, and reports each comparison with the gate it used.
 */
#ifndef FRT_SELFTEST_H_
#define FRT_SELFTEST_H_

#include <frt/base.h>
#include <frt/model.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_SELFTEST "frt.selftest/1"

#define FRT_VERDICT_PASS 0u
#define FRT_VERDICT_FAIL 1u
#define FRT_VERDICT_SKIP 2u /* not comparable here; `gate` says why */

/* One comparison. Both strings are there, and valid during the call. Figures that do not apply are
 * NaN. */
typedef struct frt_selftest_row {
  uint32_t struct_size;
  uint32_t verdict;
  const char* tensor;      /* name in the golden file, e.g. "t150.logits" */
  const char* gate;        /* the rule applied, e.g. "max abs <= 1e-3" */
  uint64_t values;         /* compared elements */
  double max_abs;          /* largest absolute difference */
  double relative;         /* Euclidean norm of the difference over that of the golden */
  double cosine_min;       /* smallest cosine over rows */
  double cosine_mean;      /* mean cosine over rows */
  double argmax_agreement; /* share of rows with the same argmax, 0 .. 1 */
} frt_selftest_row;
FRT_ASSERT_LAYOUT(frt_selftest_row, 72, argmax_agreement, 64);

/* Receives one row, valid during the call. Anything but FRT_OK stops the test, whose `run` returns
 * that code. On the thread of `run`, before it returns.  [as run] */
typedef frt_status (*frt_selftest_report)(void* user, const frt_selftest_row* row);

typedef struct frt_selftest_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* Runs every case of the golden file or folder at `path` (absolute) and reports each tensor
   * found there. Returns FRT_OK when all could be run, whatever the verdicts; FRT_ERR_FORMAT or
   * FRT_ERR_MISMATCH if the goldens are not for this model.  [setup] */
  frt_status (*run)(frt_model model, const char* path, frt_selftest_report report, void* user,
                    frt_error* error);
} frt_selftest_v1;
FRT_ASSERT_LAYOUT(frt_selftest_v1, 16, run, 8);

FRT_EXTERN_C_END

#endif /* FRT_SELFTEST_H_ */
