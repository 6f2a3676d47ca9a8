// SPDX-License-Identifier: Apache-2.0
// content.hpp - the content of a message: a text or a list of parts, of which models read the text.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "http/api/limits.hpp"
#include "http/api/request/fields.hpp"

namespace frt::host::api {

// "path[index]".  [any]
std::string indexed(const std::string& path, std::size_t index);

// Calls `each` with every part of the member `name`, and with the part's type; a text is one part
// {"type": "text", "text"}. Nothing for a member that is missing.  [any]
void for_each_part(const Fields& owner, std::string_view name, const ApiLimits& limits,
                   const std::function<void(const Fields& part, const std::string& type)>& each);

// The text of a part of any protocol; throws ApiError for a part that is no text.  [any]
std::string part_text(const Fields& part, const std::string& type);

// All parts in one text, a line feed between them. Throws ApiError for a part that is no text.
// [any]
std::string read_text(const Fields& owner, std::string_view name, const ApiLimits& limits);

// The same for the result of a tool: a note stands for a part that is no text. An agent's history
// keeps the part, so to refuse it would be to refuse all later turns.  [any]
std::string read_result(const Fields& owner, std::string_view name, const ApiLimits& limits);

}  // namespace frt::host::api
