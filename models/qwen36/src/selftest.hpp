// SPDX-License-Identifier: Apache-2.0
// selftest.hpp - a model against golden tensors: every tensor of every case, and three properties
// that need no golden of their own: any prefix of a prompt gives the logits of its last row, a
// prompt fed in pieces (prefill and decode mixed) gives those of one pass, and the recorded graph
// gives bit for bit what the eager recipe gives.
#pragma once

#include <filesystem>

#include "model.hpp"
#include "selftest_checks.hpp"

namespace frt::qwen36 {

// Uses slot 0. FRT_ERR_MISMATCH if the goldens are not for this model.  [driver]
void run_selftest(const Model& model, const std::filesystem::path& path, frt_selftest_report report,
                  void* user);

}  // namespace frt::qwen36
