// SPDX-License-Identifier: Apache-2.0
// What good_model saw at open, for the tests to look at.
#pragma once

#include <cstdint>
#include <frt/table.hpp>

struct ProbeTable {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t threads;
  bool exec, state, nothing;
};
inline constexpr const char* kProbeId = "test.probe/1";
FRT_CONTRACT(ProbeTable, "test.probe/1", nothing);
