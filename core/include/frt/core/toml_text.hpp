// SPDX-License-Identifier: Apache-2.0
// toml_text.hpp - pieces of TOML for those who write it.
#pragma once

#include <string>
#include <string_view>

namespace frt::core {

// `text` as a TOML basic string, quotes included.  [any]
std::string toml_quote(std::string_view text);
// `key` as it is if TOML takes it bare, quoted otherwise.  [any]
std::string toml_key(std::string_view key);

}  // namespace frt::core
