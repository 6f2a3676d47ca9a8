// SPDX-License-Identifier: Apache-2.0
// grammar_world.hpp - grammars over vocabularies that a test makes up.
#pragma once

#include <doctest/doctest.h>

#include <frt/error.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lm/grammar/backend.hpp"
#include "lm/grammar/source.hpp"

namespace frt::test {

using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;

inline bool allows(const std::vector<uint32_t>& mask, std::size_t id) {
  return (mask[id / 32] >> (id % 32) & 1) != 0;
}

inline std::vector<uint32_t> mask_for(const Texts& vocabulary) {
  return std::vector<uint32_t>((vocabulary.size() + 31) / 32);
}

inline std::shared_ptr<const host::Grammar> compiled(const Texts& vocabulary,
                                                     const host::GrammarSource& source,
                                                     const host::GrammarBudget& budget = {}) {
  return host::make_grammar_backend(vocabulary)->compile(source, budget, [] { return true; });
}

inline host::GrammarSource source_of(const host::GrammarPart& part) {
  return part.source(nullptr);
}

// A token for every byte, and some longer ones.
inline Texts byte_vocabulary(const Texts& more = {}) {
  Texts vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  vocabulary.insert(vocabulary.end(), more.begin(), more.end());
  return vocabulary;
}

// Whether the grammar takes all of `text`, byte by byte in a byte_vocabulary().
inline bool takes(const host::Grammar& grammar, const std::string& text) {
  const auto matcher = grammar.matcher();
  for (const char byte : text) {
    if (!matcher->accept(static_cast<unsigned char>(byte))) return false;
  }
  return matcher->complete();
}

}  // namespace frt::test
