// SPDX-License-Identifier: Apache-2.0
#include "check.hpp"

namespace frt::conformance {

void add_attention_cases(Suite&) {}

}  // namespace frt::conformance
