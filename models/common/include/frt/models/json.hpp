// SPDX-License-Identifier: Apache-2.0
// frt/models/json.hpp - a JSON writer that prints what Python's json.dumps(ensure_ascii=False)
// prints, because chat templates were trained on that. The reader is frt/io/json.hpp.
#pragma once

#include <frt/io/json.hpp>

#include <string>

namespace frt::models {

using io::Json;

// json.dumps(value, ensure_ascii=False): ", " and ": " between, keys in the order they have, floats
// as Python's repr ("1.0", "1e-05", "1e+16", "NaN", "Infinity"), \uXXXX for control characters
// only. What is no UTF-8 becomes U+FFFD. For the rest, and for errors, see frt/io/json_text.hpp.
// [any]
std::string python_json(const Json& value);

// repr() of a Python float.  [any]
std::string python_float(double value);

}  // namespace frt::models
