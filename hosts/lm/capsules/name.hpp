// SPDX-License-Identifier: Apache-2.0
// name.hpp - names of capsules: those that people give, and those that are made from what a
// capsule holds.
//
// Only a capsule with a made name may be removed by a budget, and only if its own file says so: an
// automatic kind, under the very name that its content gives. A capsule of another name belongs to
// whoever named it, whatever its kind.
#pragma once

#include <string>
#include <string_view>

#include "lm/capsules/content.hpp"

namespace frt::host {

// FRT_CAPSULE_NAME_RULE.
bool is_capsule_name(std::string_view name) noexcept;
// Throws FRT_ERR_INVALID_ARGUMENT against the rule.
void require_capsule_name(std::string_view name);

// "auto-BOUNDARY-DIGEST-FINGERPRINT": of the tokens and of how they were fed, and of the model that
// they were fed to, so that several models can share a folder. content.digest is up to date.
std::string automatic_name(const CapsuleContent& content);

// Whether the file `name` with this content was made by itself, and nobody named it.
bool is_automatic(const CapsuleContent& content, std::string_view name);

}  // namespace frt::host
