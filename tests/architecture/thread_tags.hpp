// SPDX-License-Identifier: Apache-2.0
// thread_tags.hpp - every function of the ABI says from which threads it may be called.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace thread_tags {

// The function pointers of C text (members and typedefs) without a thread tag in a comment of their
// own: before the declaration, inside it, or on its last line. A callback in a parameter list has
// the tag of its function.
std::vector<std::string> untagged(std::string_view text);

// "header: name" of each under `include` (sdk/include).
std::vector<std::string> problems(const std::filesystem::path& include);

}  // namespace thread_tags
