// SPDX-License-Identifier: Apache-2.0
#include "device_features.hpp"

namespace frt::cuda {
namespace {

struct Name {
  FeatureSet bit;
  const char* text;
};
constexpr Name kNames[] = {
    {feature::kPdl, "pdl"},
    {feature::kClusters, "clusters"},
    {feature::kBulkCopies, "bulk-copies"},
    {feature::kWgmma, "wgmma"},
    {feature::kTcgen05, "tcgen05"},
    {feature::kFp4Mma, "fp4-mma"},
    {feature::kCoResident, "co-resident"},
    {feature::kLibrary, "cublaslt"},
    {feature::kFp8Activations, "fp8-activations"},
    {feature::kFp4Activations, "fp4-activations"},
};

}  // namespace

FeatureSet features_of(const FeatureFacts& facts) {
  FeatureSet set = feature::kLibrary;
  // PTX of a base architecture runs on every newer device, with the base's instructions.
  if (facts.code >= 90 && facts.capability >= 90) {
    set |= feature::kPdl | feature::kClusters | feature::kBulkCopies;
  }
  // Instructions of an "a" architecture exist in its machine code alone, and on its device alone.
  if (facts.code_exact && facts.code == facts.capability) {
    if (facts.code == 90) set |= feature::kWgmma;
    if (facts.code >= 100 && facts.code < 120) set |= feature::kTcgen05;
    // sm_100 to sm_110 multiply FP4 in tensor memory alone. What comes later is named when the code
    // for it is there (ops/common/arch.cuh).
    if (facts.code == 120 || facts.code == 121) set |= feature::kFp4Mma;
  }
  if (facts.cooperative) set |= feature::kCoResident;
  if (facts.activations == ActivationRounding::kFp8) set |= feature::kFp8Activations;
  if (facts.activations == ActivationRounding::kFp4) set |= feature::kFp4Activations;
  return set;
}

FeatureSet feature_named(const std::string& name) {
  for (const Name& one : kNames) {
    if (name == one.text) return one.bit;
  }
  return 0;
}

std::string needs_text(const Needs& needs) {
  std::string text;
  for (const Name& one : kNames) {
    if (!(needs.features & one.bit)) continue;
    text += (text.empty() ? "" : ", ") + std::string(one.text);
  }
  if (needs.shared_bytes > 0) {
    text +=
        (text.empty() ? "" : ", ") + std::to_string(needs.shared_bytes) + " bytes of shared memory";
  }
  return text;
}

}  // namespace frt::cuda
