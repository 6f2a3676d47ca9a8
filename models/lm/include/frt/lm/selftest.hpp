// SPDX-License-Identifier: Apache-2.0
// frt/lm/selftest.hpp - a model against golden tensors: every tensor of every case, and three
// properties that need no golden of their own: any prefix of a prompt gives the logits of its last
// row, a prompt fed in pieces (prefill and decode mixed) gives those of one pass, and the recorded
// graph gives bit for bit what the eager recipe gives.
#pragma once

#include <filesystem>

#include <frt/lm/model.hpp>
#include <frt/lm/selftest_checks.hpp>

namespace frt::lm {

// Uses slot 0. FRT_ERR_MISMATCH if the goldens are not for this model.  [driver]
void run_selftest(const Model& model, const std::filesystem::path& path, frt_selftest_report report,
                  void* user);

}  // namespace frt::lm
