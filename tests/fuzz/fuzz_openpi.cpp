// SPDX-License-Identifier: Apache-2.0
// Observations from the wire, up to what a model is handed.
#include <cstddef>
#include <cstdint>
#include <frt/error.hpp>

#include "robot/service/wire/observation.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    frt::host::Message message;
    message.parse({reinterpret_cast<const char*>(data), size});
    const frt::host::WireRequest request = frt::host::read_request(message);
    std::vector<std::string> aligned;
    double sum = 0;
    frt::host::to_arrays(request, aligned);
    for (const auto& array : request.arrays) {
      for (uint64_t i = 0; i < array.count(); ++i) sum += array.value(i);
    }
    (void)sum;
  } catch (const frt::Error&) {
  }
  return 0;
}
