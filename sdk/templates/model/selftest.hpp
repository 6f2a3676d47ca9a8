// SPDX-License-Identifier: Apache-2.0
// The model against golden tensors that something else computed (make_goldens.py), in a safetensors
// file. Of each case NAME:
//   NAME.ids     I32 (n)        the prompt
//   NAME.next    I32 (m)        the ids that follow when the most probable one is taken each time
//   NAME.logits  F32 (m, 257)   those that each of them was taken from
#pragma once

#include <frt/selftest.h>

#include <frt/exec.hpp>
#include <frt/role/lm_buffers.hpp>
#include <string>

namespace acme {

// What the test needs of a model, borrowed.
struct SelftestModel {
  const frt::Context& context;
  const frt::State& state;
  const frt::LmBuffers& buffers;
  const frt_lm_info& role;
};

// Runs every case of a file, or of the files of a folder, in slot 0 and reports its tensors. Throws
// FRT_ERR_MISMATCH or FRT_ERR_FORMAT for goldens of another model.  [setup]
frt_status run_selftest(const SelftestModel& model, const std::string& path,
                        frt_selftest_report report, void* user);

}  // namespace acme
