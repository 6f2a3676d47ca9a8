// SPDX-License-Identifier: Apache-2.0
// json_line.hpp - JSON values as lines for the wire, and as server-sent events.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace frt::host::api {

using Json = nlohmann::ordered_json;

// `text` as UTF-8: each maximal part that is none becomes U+FFFD.  [any]
std::string lossy_text(std::string_view text);

// One line of JSON. Besides what JSON demands, every character is escaped at which some client's
// reader of lines would cut: U+0085, U+2028, U+2029.  [any]
std::string json_line(const Json& value);

// "data: VALUE", and with an event's name before it. A record ends with an empty line.  [any]
std::string sse_record(const Json& value);
std::string sse_record(std::string_view event, const Json& value);

}  // namespace frt::host::api
