// SPDX-License-Identifier: Apache-2.0
// schema.hpp - which JSON schemas a grammar can hold an answer to. All functions are [any].
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

namespace frt::host {

// The schema as the compiler is to read it: an object or a list about whose parts it says nothing
// takes any. Throws FRT_ERR_INVALID_ARGUMENT with the place ("/properties/x/not") for a keyword
// that would not be enforced, annotations ("title", ...) apart, and for a schema that no value
// fits.
nlohmann::ordered_json enforceable_schema(const nlohmann::ordered_json& schema);

// A schema that every value of the given one fits, without what is dear to compile or would not be
// enforced: bounds of more than kLargestBound, patterns, unknown keywords. Never throws for what a
// schema says.
nlohmann::ordered_json relaxed_schema(const nlohmann::ordered_json& schema);
inline constexpr uint64_t kLargestBound = 32;

}  // namespace frt::host
