// SPDX-License-Identifier: Apache-2.0
// shown.hpp - what came from a client, or from a model, in a text for a client.
#pragma once

#include <string>
#include <string_view>

namespace frt::host {

constexpr std::size_t kShownName = 64;     // bytes of a name or a value in an error
constexpr std::size_t kShownError = 1000;  // bytes of an error's text

// At most `bytes` bytes of `text` with control characters and invalid UTF-8 escaped, which is
// UTF-8 itself; "..." where something was cut.  [any]
std::string shown(std::string_view text, std::size_t bytes = kShownName);

}  // namespace frt::host
