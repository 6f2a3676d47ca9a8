// SPDX-License-Identifier: Apache-2.0
// vocabulary.hpp - what each token of a model adds to a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lm/text_model.hpp"

namespace frt::host {

// Bytes of the tokens 0 .. size; empty for control tokens and ids that no token has: no grammar
// lets them come. Throws FRT_ERR_UNSUPPORTED for a tokenizer that does not say.  [any]
std::vector<std::string> grammar_vocabulary(const TextModel& model, uint32_t size);

}  // namespace frt::host
