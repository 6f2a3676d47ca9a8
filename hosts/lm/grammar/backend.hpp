// SPDX-License-Identifier: Apache-2.0
// backend.hpp - what turns sources into grammars: XGrammar, where tools/setup-xgrammar has built
// it (xgrammar_backend.cpp), else nothing (no_backend.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lm/grammar/grammar.hpp"
#include "lm/grammar/source.hpp"

namespace frt::host {

// What a compilation may take.
struct GrammarBudget {
  double seconds = 5;             // of a processor
  uint64_t bytes = 256ULL << 20;  // of memory, about
};

class GrammarBackend {
 public:
  virtual ~GrammarBackend() = default;
  // Throws FRT_ERR_INVALID_ARGUMENT for a source that cannot be compiled, or not within `budget`;
  // FRT_ERR_BAD_STATE once `wanted` says no.  [any]
  virtual std::shared_ptr<const Grammar> compile(const GrammarSource& source,
                                                 const GrammarBudget& budget,
                                                 const std::function<bool()>& wanted) const = 0;
};

// Whether there is one.  [any]
bool has_grammar_backend() noexcept;
// FRT_ERR_UNSUPPORTED, naming the tool, where there is none.  [any]
void require_grammar_backend();
// `tokens`: grammar_vocabulary().
std::unique_ptr<GrammarBackend> make_grammar_backend(std::vector<std::string> tokens);

}  // namespace frt::host
