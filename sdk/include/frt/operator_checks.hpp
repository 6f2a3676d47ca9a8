// SPDX-License-Identifier: Apache-2.0
// frt/operator_checks.hpp - the checks of all operators of frt/ops. What a header there states of
// its arguments, the header of the same name in frt/ops/checks checks, the same for every backend,
// in a function for each operator:
//
//   check_rms_norm(Checks(FRT_OP_RMS_NORM), args);
//   check_linear(Checks(FRT_OP_LINEAR), args, formats);  // formats: frt_kernel_desc::weights
//
// They throw frt::Error(FRT_ERR_INVALID_ARGUMENT). A backend calls them at the launch and says
// afterwards, with FRT_ERR_UNSUPPORTED, what it takes less. Header-only.  [setup]
#pragma once

#include <frt/ops/checks/attention.hpp>
#include <frt/ops/checks/checksum.hpp>
#include <frt/ops/checks/dense.hpp>
#include <frt/ops/checks/dense_attention.hpp>
#include <frt/ops/checks/elementwise.hpp>
#include <frt/ops/checks/embed.hpp>
#include <frt/ops/checks/flow.hpp>
#include <frt/ops/checks/flow_layers.hpp>
#include <frt/ops/checks/gated_delta.hpp>
#include <frt/ops/checks/linear.hpp>
#include <frt/ops/checks/moe.hpp>
#include <frt/ops/checks/norm.hpp>
#include <frt/ops/checks/patch_embed.hpp>
#include <frt/ops/checks/row_norm.hpp>
#include <frt/ops/checks/rows.hpp>
#include <frt/ops/checks/sample.hpp>
#include <frt/ops/checks/weight.hpp>
