// SPDX-License-Identifier: Apache-2.0
// defect_parts.hpp - what roles and extensions know of their model (defect_roles.cpp).
#pragma once

#include <frt/exec.h>
#include <frt/model.h>

namespace defects {

inline constexpr uint32_t kVocabulary = 64;
inline constexpr uint64_t kPortBytes = 4096;

// Every port is one buffer, and every graph one that does nothing.
struct Parts {
  frt_graph graph = nullptr;
  frt_buffer buffer = nullptr;
};
Parts parts(frt_model model) noexcept;

}  // namespace defects
