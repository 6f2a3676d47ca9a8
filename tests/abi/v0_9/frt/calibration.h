/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/calibration.h - static scales for narrow activations: an extension of a model object that has
 * frt.role.policy/1 and can compute with activations in FP8, whose scales are constants.
 *
 * The model is loaded without FP8 and shown real frames; it measures what its products read and
 * gives the result as a text, which a host writes to a file and a later load takes (an option of
 * the plugin names it). What the text holds is the plugin's own business, but for one rule: it is
 * bound to the checkpoint by a digest of all its weights, and a load with another checkpoint is
 * refused with FRT_ERR_MISMATCH and both digests.
 *
 *   begin(model)
 *   for each frame: frt.observation/1 or the ports; note(model, &shape, stream)
 *   write(model, margin, sink, user)
 */
#ifndef FRT_CALIBRATION_H_
#define FRT_CALIBRATION_H_

#include <frt/base.h>
#include <frt/exec.h>
#include <frt/model.h>
#include <frt/role/policy.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_CALIBRATION "frt.calibration/1"

/* FRT_ERR_BAD_STATE from all: the model was loaded with FP8 activations. */
typedef struct frt_calibration_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* Forgets what was noted.  [driver] */
  frt_status (*begin)(frt_model model, frt_error* error);
  /* Waits for `stream`, then runs one inference eagerly on the inputs that are in the buffers of
   * the role, in the smallest variant of `shape`, and notes what its products read. As slow as it
   * needs to be. Errors as of infer_key.  [driver] */
  frt_status (*note)(frt_model model, const frt_policy_shape* shape, frt_stream stream,
                     frt_error* error);
  /* The calibration of all frames since begin(), in one call of `sink`; the largest values that
   * were seen are multiplied by `margin`, 1 or more. FRT_ERR_BAD_STATE without a frame,
   * FRT_ERR_FORMAT if something was NaN or infinite.  [driver] */
  frt_status (*write)(frt_model model, double margin, frt_sink sink, void* user, frt_error* error);
} frt_calibration_v1;
FRT_ASSERT_LAYOUT(frt_calibration_v1, 32, write, 24);

FRT_EXTERN_C_END

#endif /* FRT_CALIBRATION_H_ */
