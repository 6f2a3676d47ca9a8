// SPDX-License-Identifier: Apache-2.0
// call.hpp - calling another operator of the device as part of one.
#pragma once

#include <frt/plugin.hpp>

#include <cstring>
#include <string>

#include "../device.hpp"
#include "../stream.hpp"

namespace frt::cuda {

// Submits operator `name`, which must be of this backend; fills struct_size. Throws what it throws.
// [driver]
template <class Args>
void run_operator(Stream& stream, const char* name, Args args) {
  args.struct_size = sizeof(Args);
  for (const frt_kernel_desc& kernel : stream.device().kernels().descriptors()) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    frt_error error{};
    frt::check(kernel.kernel.launch(kernel.kernel.self, handle<frt_backend_stream>(&stream), &args,
                                    &error),
               error, name);
    return;
  }
  throw Error(FRT_ERR_INTERNAL, std::string(name) + ": the CUDA backend has no such operator");
}

}  // namespace frt::cuda
