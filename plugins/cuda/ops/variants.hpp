// SPDX-License-Identifier: Apache-2.0
// ops/variants.hpp - the kernel table: for each operation its variants in order of preference.
//
// A variant names what it needs of a device, says which arguments it supports, and launches. What
// runs is the first one that the device offers and that supports the arguments:
//
//   constexpr Variant<Call> kVariants[] = {
//       {"wgmma", {feature::kWgmma | feature::kBulkCopies}, supports_wgmma, launch_wgmma},
//       {"general", {}, nullptr, launch_general},
//   };
//   constexpr Variants<Call> kTable{FRT_OP_DENSE_ATTENTION, kVariants};
//
//   list.add_variants(kTable);                 // once a device, in the family's register function
//   run_variant(stream, kTable, call);         // at each launch
//
// The last variant of a table needs nothing and supports everything that passes the operator's
// checks. An operation is an operator, or a part that several operators share ("gemm").
// KernelTable keeps what a device offers and how often each variant was launched.
#pragma once

#include <span>

#include "../device.hpp"
#include "../device_features.hpp"
#include "../stream.hpp"

namespace frt::cuda {

// `Call` is what the variants of one operation are given: checked arguments, and room for what
// supports() works out and launch() uses, such as a plan.
template <class Call>
struct Variant {
  const char* name;
  Needs needs;
  // Whether launch() can compute it on this device. NULL: everything. Submits nothing.  [driver]
  bool (*supports)(Device& device, Call& call);
  // Submits; throws frt::Error.  [driver]
  void (*launch)(Stream& stream, Call& call);
};

template <class Call>
struct Variants {
  const char* operation;
  std::span<const Variant<Call>> all;  // in order of preference
};

// The first that the device offers and that supports `call`. Throws frt::Error(FRT_ERR_INTERNAL)
// where there is none.  [driver]
template <class Call>
const Variant<Call>& select_variant(Device& device, const Variants<Call>& table, Call& call) {
  for (const Variant<Call>& variant : table.all) {
    if (!device.offers(variant.needs)) continue;
    if (!variant.supports || variant.supports(device, call)) return variant;
  }
  device.refuse_call(table.operation);
}

// Submits with a variant that select_variant() gave for `call`, and counts it.  [driver]
template <class Call>
void launch_variant(Stream& stream, const Variant<Call>& variant, Call& call) {
  stream.device().count_launch(&variant);
  variant.launch(stream, call);
}

template <class Call>
void run_variant(Stream& stream, const Variants<Call>& table, Call& call) {
  launch_variant(stream, select_variant(stream.device(), table, call), call);
}

}  // namespace frt::cuda
