// SPDX-License-Identifier: Apache-2.0
#include "lm/grammar/vocabulary.hpp"

#include <algorithm>

namespace frt::host {

std::vector<std::string> grammar_vocabulary(const TextModel& model, uint32_t size) {
  std::vector<std::string> tokens(size);
  const uint32_t known = std::min(size, model.tokenizer().vocabulary(model.handle()));
  for (uint32_t id = 0; id < known; ++id) {
    uint32_t flags = 0;
    std::string bytes = model.token_bytes(static_cast<int32_t>(id), flags);
    if ((flags & FRT_TOKEN_CONTROL) == 0) tokens[id] = std::move(bytes);
  }
  return tokens;
}

}  // namespace frt::host
