// SPDX-License-Identifier: Apache-2.0
// Memory that runs out while a grammar is compiled or followed.
#include "grammar_world.hpp"
#include "memory_shortage.hpp"

namespace frt::test {

TEST_CASE("memory that runs out is an error of the one compilation, and the next one succeeds") {
  const auto backend = host::make_grammar_backend(byte_vocabulary({"true", "\": "}));
  const host::GrammarSource source = source_of(host::GrammarPart::json_schema(Json::parse(
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]},
          "c": {"type": "array", "items": {"type": "string", "maxLength": 4}}}})")));
  const auto yes = [] { return true; };
  int64_t allocations = 0;
  int shortages = 0;
  for (;; allocations += 1 + allocations / 16) {
    std::shared_ptr<const host::Grammar> grammar;
    frt_error error{};
    allocations_left = allocations;
    const frt_status status = guard(&error, [&] { grammar = backend->compile(source, {}, yes); });
    allocations_left = kPlenty;
    if (status == FRT_OK) {
      CHECK(takes(*grammar, R"({"a": 1})"));
      break;
    }
    REQUIRE(status == FRT_ERR_OUT_OF_MEMORY);
    ++shortages;
  }
  CHECK(shortages > 20);
  MESSAGE(shortages << " shortages, the last at " << allocations << " allocations");
}

TEST_CASE("memory that runs out ends the one answer") {
  const Texts vocabulary = byte_vocabulary();
  const auto grammar = compiled(vocabulary, source_of(host::GrammarPart::json_object()));
  const std::string text = R"({"a": [1, {"b": [true, null]}], "c": "text"})";
  int shortages = 0;
  for (int64_t allocations = 0; allocations < 400; allocations += 1 + allocations / 16) {
    std::unique_ptr<host::GrammarMatcher> matcher;
    std::vector<uint32_t> mask = mask_for(vocabulary);
    frt_error error{};
    allocations_left = allocations;
    const frt_status status = guard(&error, [&] {
      matcher = grammar->matcher();
      for (const char byte : text) {
        matcher->fill(mask);
        if (!matcher->accept(static_cast<unsigned char>(byte))) throw Error(FRT_ERR_INTERNAL, "");
      }
    });
    matcher.reset();
    allocations_left = kPlenty;
    if (status != FRT_OK) {
      REQUIRE(status == FRT_ERR_OUT_OF_MEMORY);
      ++shortages;
    }
  }
  CHECK(shortages > 5);
  CHECK(takes(*grammar, text));
}

}  // namespace frt::test
