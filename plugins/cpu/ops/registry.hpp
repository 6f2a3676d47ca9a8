// SPDX-License-Identifier: Apache-2.0
// ops/registry.hpp - the operator families of this backend.
//
// A family is one file ops/<family>.cpp that ends in its register function. To add one: declare
// the function here, call it in registry.cpp, list the file in sources.cmake.
#pragma once

#include "../node.hpp"

namespace frt::cpu {

// Adds every operator of every family, in the order in which later entries win.  [setup]
void register_operators(KernelList& list);

void register_rows(KernelList& list);  // frt/ops/rows.h

}  // namespace frt::cpu
