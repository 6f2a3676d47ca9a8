// SPDX-License-Identifier: Apache-2.0
// Any bytes are a safetensors file or an error.
#include <frt/error.hpp>
#include <frt/models/safetensors.hpp>

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    frt::models::validate_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const frt::Error&) {
    return 0;
  }
  return 0;
}
