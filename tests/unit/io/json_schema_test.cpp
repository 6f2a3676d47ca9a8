// SPDX-License-Identifier: Apache-2.0
// Which values a call between tags has as texts.
#include <doctest/doctest.h>

#include <frt/io/json_schema.hpp>

using frt::io::Json;

TEST_CASE("a value is a text where its schema takes texts, through references and choices") {
  const Json root = Json::parse(R"({"type": "object", "$defs": {
      "text": {"type": "string"}, "number": {"type": "number"},
      "to_number": {"$ref": "#/$defs/number"}, "circle": {"$ref": "#/$defs/circle"},
      "doubling": {"anyOf": [{"$ref": "#/$defs/doubling"}, {"$ref": "#/$defs/doubling"}]}}})");
  const char* texts[] = {"{}",
                         "true",
                         R"({"type": "string"})",
                         R"({"type": ["string", "null"]})",
                         R"({"enum": ["a", "b"]})",
                         R"({"const": "a"})",
                         R"({"$ref": "#/$defs/text"})",
                         R"({"$ref": "#/$defs/none"})",
                         R"({"$ref": "#/$defs/circle"})",
                         R"({"$ref": "other"})",
                         R"({"$ref": "#/$defs/doubling"})",
                         R"({"anyOf": [{"type": "null"}, {"type": "string"}]})",
                         R"({"allOf": [{"type": "string"}]})"};
  const char* others[] = {R"({"type": "integer"})",
                          R"({"type": ["integer", "null"]})",
                          R"({"enum": ["a", null]})",
                          R"({"type": ["string", "null"], "enum": ["a", null]})",
                          R"({"const": 5})",
                          R"({"$ref": "#"})",
                          R"({"$ref": "#/$defs/to_number"})",
                          R"({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/number"}]})",
                          R"({"allOf": [{"type": "integer"}]})",
                          R"({"properties": {}})",
                          R"({"items": {}})"};
  for (const char* schema : texts) {
    CAPTURE(schema);
    CHECK(frt::io::takes_text(Json::parse(schema), root));
  }
  for (const char* schema : others) {
    CAPTURE(schema);
    CHECK_FALSE(frt::io::takes_text(Json::parse(schema), root));
  }
}
