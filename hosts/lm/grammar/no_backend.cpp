// SPDX-License-Identifier: Apache-2.0
#include <frt/error.hpp>

#include "lm/grammar/backend.hpp"

namespace frt::host {

bool has_grammar_backend() noexcept {
  return false;
}

void require_grammar_backend() {
  throw Error(FRT_ERR_UNSUPPORTED,
              "this program was built without XGrammar, which structured output and forced tool "
              "calls need: run tools/setup-xgrammar, then configure and build again");
}

std::unique_ptr<GrammarBackend> make_grammar_backend(std::vector<std::string>) {
  require_grammar_backend();
  return nullptr;
}

}  // namespace frt::host
