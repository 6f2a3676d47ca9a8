// SPDX-License-Identifier: Apache-2.0
// Any file is a plugin, or is refused, without being loaded.
#include <frt/core/plugin.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("plugin", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  try {
    frt::core::read_image(file, "fuzz");
  } catch (const frt::Error&) {
    return 0;
  }
  return 0;
}
