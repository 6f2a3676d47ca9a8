// SPDX-License-Identifier: Apache-2.0
// Any text is the metadata of a capsule or an error; metadata can be written again and stay the
// same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <frt/error.hpp>

#include "lm/capsules/content.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace frt::host;
  std::string text;
  try {
    text = content_to_text(content_from_text({reinterpret_cast<const char*>(data), size}));
  } catch (const frt::Error&) {
    return 0;
  }
  if (content_to_text(content_from_text(text)) != text) std::abort();
  return 0;
}
