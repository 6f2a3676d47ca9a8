// SPDX-License-Identifier: Apache-2.0
// ops/registry.hpp - the operator families of this backend.
//
// A family is one file ops/<family>.cu that ends in its register function. To add one: declare the
// function here, call it in registry.cpp, list the file in sources.cmake.
#pragma once

#include "../kernel_list.hpp"

namespace frt::cuda {

// Adds every operator of every family, in the order in which later entries win.  [setup]
void register_operators(KernelList& list);

void register_attention(KernelList& list);           // frt/ops/attention.h
void register_causal_conv(KernelList& list);         // frt/ops/gated_delta.h
void register_checksum(KernelList& list);            // frt/ops/checksum.h
void register_convert(KernelList& list);             // frt/ops/elementwise.h
void register_dense(KernelList& list);               // frt/ops/dense.h
void register_dense_attention(KernelList& list);     // frt/ops/dense_attention.h
void register_elementwise(KernelList& list);         // frt/ops/elementwise.h
void register_embed(KernelList& list);               // frt/ops/embed.h
void register_fill(KernelList& list);                // frt/ops/elementwise.h
void register_flow(KernelList& list);                // frt/ops/flow.h
void register_flow_layers(KernelList& list);         // frt/ops/flow_layers.h
void register_gated_delta(KernelList& list);         // frt/ops/gated_delta.h
void register_gated_delta_commit(KernelList& list);  // frt/ops/gated_delta.h
void register_linear(KernelList& list);              // frt/ops/linear.h
void register_moe(KernelList& list);                 // frt/ops/moe.h
void register_norm(KernelList& list);                // frt/ops/norm.h
void register_patch_embed(KernelList& list);         // frt/ops/patch_embed.h
void register_row_norm(KernelList& list);            // frt/ops/row_norm.h
void register_rows(KernelList& list);                // frt/ops/rows.h
void register_sample(KernelList& list);              // frt/ops/sample.h
void register_tokens(KernelList& list);              // frt/ops/sample.h

}  // namespace frt::cuda
