// SPDX-License-Identifier: Apache-2.0
// operators.hpp - Python's operators on values. FRT_ERR_INVALID_ARGUMENT for types that an operator
// does not take.
#pragma once

#include <string_view>

#include "value.hpp"

namespace frt::lm::jinja {

bool equal(Meter& meter, const Value& a, const Value& b);
bool less(Meter& meter, const Value& a, const Value& b);
bool contains(Meter& meter, const Value& whole, const Value& part);
// `op`: == != < <= > >= in "not in"
bool compare(Meter& meter, std::string_view op, const Value& a, const Value& b);
// `op`: + - * / // % **
Value calculate(Meter& meter, std::string_view op, const Value& a, const Value& b);
Value concatenate(Meter& meter, const Value& a, const Value& b);  // a ~ b
Value negate(const Value& value, bool negative);

// value[begin:end:step]; undefined or None: not given.
Value slice(Meter& meter, const Value& value, const Value& begin, const Value& end,
            const Value& step);

// Python's "format % values".
Value format_percent(Meter& meter, const PromptText& format, const std::vector<Value>& values);

// The text of `count` times `text`.
PromptText repeat(Meter& meter, const PromptText& text, std::int64_t count);

}  // namespace frt::lm::jinja
