// SPDX-License-Identifier: Apache-2.0
// variants.hpp - which kernel variants of the backend under test ran (frt/draft/kernel_variants.h).
#pragma once

#include <frt/draft/kernel_variants.hpp>

#include <string>
#include <vector>

#include "backend.hpp"

namespace frt::conformance {

class VariantWatch {
 public:
  // A backend without the extension has no variants.
  explicit VariantWatch(const Backend& backend);

  // The variants that were launched since the last call, "frt.linear/1 gemv", in the backend's
  // order.
  std::vector<std::string> launched();
  // Those that the device offers and that were never launched since the device was opened.
  std::vector<std::string> idle() const;

 private:
  std::vector<KernelVariant> read() const;

  const Backend& backend_;
  std::vector<KernelVariant> last_;
};

}  // namespace frt::conformance
