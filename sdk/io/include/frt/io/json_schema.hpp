// SPDX-License-Identifier: Apache-2.0
// frt/io/json_schema.hpp - what a JSON schema says of how a value is written. A conversation format
// that writes the values of a call between tags writes texts as they are and the rest as JSON:
// whoever reads such a call and whoever forces a model to write one must agree on which is which.
#pragma once

#include <frt/io/json.hpp>

namespace frt::io {

// What "$ref": "#/..." names in `root`, or null where it names nothing, or a circle. References to
// references are followed. Without "$ref": `schema`.  [any]
const Json* resolve_reference(const Json& schema, const Json& root);

// True if a value of `schema`, a part of `root`, is written as a text: const and enum have texts
// alone, else one of anyOf or oneOf is one, else a type is "string", or nothing is said. At most
// 256 schemas are looked at; beyond them a value is a text.  [any]
bool takes_text(const Json& schema, const Json& root);

}  // namespace frt::io
