// SPDX-License-Identifier: Apache-2.0
#include "variants.hpp"

namespace frt::conformance {
namespace {

std::string name_of(const KernelVariant& variant) {
  return variant.operation + " " + variant.name;
}

}  // namespace

VariantWatch::VariantWatch(const Backend& backend) : backend_(backend), last_(read()) {}

std::vector<KernelVariant> VariantWatch::read() const {
  const frt_kernel_variants_draft* table = backend_.variants();
  if (!table) return {};
  return list_kernel_variants(*table, backend_.device(), backend_.id());
}

std::vector<std::string> VariantWatch::launched() {
  std::vector<std::string> names;
  std::vector<KernelVariant> now = read();
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].launches > last_[i].launches) names.push_back(name_of(now[i]));
  }
  last_ = std::move(now);
  return names;
}

std::vector<std::string> VariantWatch::idle() const {
  std::vector<std::string> names;
  for (const KernelVariant& variant : read()) {
    if (variant.offered && variant.launches == 0) names.push_back(name_of(variant));
  }
  return names;
}

}  // namespace frt::conformance
