// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <cstring>
#include <frt/plugin.hpp>
#include <string>

#include "../../backend_device.hpp"
#include "../../backend_stream.hpp"

namespace frt::cuda {

void run_operator_struct(Stream& stream, const char* name, const void* args) {
  for (const frt_kernel_desc& kernel : behind(stream.device()).kernels().descriptors()) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    frt_error error{};
    frt::check(kernel.kernel.launch(kernel.kernel.self, handle<frt_backend_stream>(&behind(stream)),
                                    args, &error),
               error, name);
    return;
  }
  throw Error(FRT_ERR_INTERNAL, std::string(name) + ": the CUDA backend has no such operator");
}

}  // namespace frt::cuda
