// SPDX-License-Identifier: Apache-2.0
// Episode files, up to their arrays.
#include <cstddef>
#include <cstdint>
#include <frt/error.hpp>

#include "robot/record/npz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    frt::host::parse_npz({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const frt::Error&) {
  }
  return 0;
}
