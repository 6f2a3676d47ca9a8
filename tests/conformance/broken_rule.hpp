// SPDX-License-Identifier: Apache-2.0
// broken_rule.hpp - how a case of a plugin ends that found a broken rule; `text` says which.
#pragma once

#include <string>

#include <frt/error.hpp>

namespace frt::conformance {

[[noreturn]] inline void fail(const std::string& text) {
  throw Error(FRT_ERR_MISMATCH, text);
}
// A rule of descriptors, tables and structs.
[[noreturn]] inline void fail_abi(const std::string& text) {
  throw Error(FRT_ERR_ABI, text);
}

}  // namespace frt::conformance
