// SPDX-License-Identifier: Apache-2.0
// call.hpp - calling another operator of the device as part of one.
#pragma once

#include "../../stream.hpp"

namespace frt::cuda {

// Submits operator `name`, which must be of this backend, with the argument struct at `args`.
// Throws what it throws.  [driver]
void run_operator_struct(Stream& stream, const char* name, const void* args);

// The same; fills struct_size.
template <class Args>
void run_operator(Stream& stream, const char* name, Args args) {
  args.struct_size = sizeof(Args);
  run_operator_struct(stream, name, &args);
}

}  // namespace frt::cuda
