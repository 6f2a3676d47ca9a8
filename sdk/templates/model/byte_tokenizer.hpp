// SPDX-License-Identifier: Apache-2.0
// Token ids 0 to 255 are bytes; 256 is the end token, "<|end|>" in texts.
#pragma once

#include <frt/tokenizer.h>

#include <cstdint>

namespace acme {

inline constexpr int32_t kEndToken = 256;
inline constexpr uint32_t kVocabulary = 257;

// Works for every model object: it does not look at it.
extern const frt_tokenizer_v1 kByteTokenizer;

}  // namespace acme
