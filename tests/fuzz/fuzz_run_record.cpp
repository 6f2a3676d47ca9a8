// SPDX-License-Identifier: Apache-2.0
// Any file is a run record or an error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <frt/error.hpp>
#include <string>

#include "lm/run_record.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const int file = ::memfd_create("record", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    frt::host::read_record("/proc/self/fd/" + std::to_string(file));
  } catch (const frt::Error&) {
  }
  ::close(file);
  return 0;
}
