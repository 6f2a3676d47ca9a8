// SPDX-License-Identifier: Apache-2.0
// secret.hpp - comparing what a client sent with a secret, in a time that tells nothing.
#pragma once

#include <string_view>

namespace frt::host {

// Takes the same time for every `given` of one length, wherever the first difference is.  [any]
bool equal_secret(std::string_view given, std::string_view secret) noexcept;

}  // namespace frt::host
