// SPDX-License-Identifier: Apache-2.0
// The two big lists of a tokenizer.json (vocabulary and merges) read straight from the SAX events
// into flat memory, and everything else as a JSON value: 13 MB load in a fraction of a second.
#pragma once

#include <frt/models/json.hpp>
#include <frt/models/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace frt::models {

constexpr std::size_t kLargestTokenizer = std::size_t{256} << 20;  // bytes of a file
constexpr TokenId kLargestId = (1 << 22) - 1;                      // bounds the table of ids

struct TokenizerFile {
  struct Word {
    std::uint32_t offset, length;  // in `arena`
    TokenId id;
    bool mapped;  // `arena` has the bytes it stands for; else the text as written
  };
  struct MergePair {
    std::uint32_t offset, left, right;  // lengths; the right part follows the left one
  };

  std::string arena;
  std::vector<Word> vocabulary;
  std::vector<MergePair> merges;  // in order of rank; bytes, not characters
  bool has_vocabulary = false;
  bool has_merges = false;
  Json rest;  // the whole file, with null for the two lists
};

// Throws FRT_ERR_FORMAT.
TokenizerFile read_tokenizer_file(std::string_view text, std::string_view name);

}  // namespace frt::models
