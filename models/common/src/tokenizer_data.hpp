// SPDX-License-Identifier: Apache-2.0
// What a loaded tokenizer consists of. Built by tokenizer_json.cpp, used by tokenizer.cpp, constant
// in between.
#pragma once

#include <frt/models/tokenizer.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "split_regex.hpp"

namespace frt::models {

// One step of pre-tokenisation, applied to every word the step before has made.
struct SplitStep {
  bool prefix_space = false;  // put a space before a word that does not start with one
  std::optional<SplitRegex> regex;
};

struct Tokenizer::Data {
  struct Token {
    std::string_view bytes;  // in `arena`, or the content of an added token
    bool exists = false;
    bool special = false;
    bool border = false;  // Tokenizer::is_border()
  };

  std::string arena;          // never changed once the vocabulary is built: many views point in
  std::vector<Token> tokens;  // by id

  BpeModel bpe;
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  boost::unordered_flat_map<std::string_view, TokenId> id_of_bytes;  // of the BPE vocabulary
  // Vocabulary entries with characters that stand for no byte: known by name, never encoded.
  boost::unordered_flat_map<std::string, TokenId> id_of_unmapped;

  std::vector<AddedToken> added;  // sorted by id; never changed once built
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;

  bool nfc = false;
  std::vector<SplitStep> steps;

  std::vector<TokenId> prefix;  // of TemplateProcessing: in front of a text that begins a sequence

  std::size_t longest_token = 0;  // bytes
  // Bytes of the longest entry of the BPE vocabulary that has this byte; at least 1.
  std::array<std::size_t, 256> longest_with = {};
  bool tokens_take_space = false;  // some added token takes white space beside it, however much
};

}  // namespace frt::models
