// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one word.
#pragma once

#include <frt/models/tokenizer.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace frt::models {

struct BpeModel {
  struct Rule {
    TokenId left, right;  // neighbours
    TokenId id;           // what they become
  };

  std::array<TokenId, 256> id_of_byte{};
  std::vector<Rule> rules;                                          // by rank: lower ones go first
  boost::unordered_flat_map<std::uint64_t, std::uint32_t> rank_of;  // pair() -> rank

  static std::uint64_t pair(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
};

// Scratch memory between words, for one thread: at most 28 bytes per byte of the longest word.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(&model) {}

  // Appends the ids of `word` (any bytes).
  void encode(std::string_view word, std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId id;                   // kMerged: part of the symbol to its left
    std::int32_t previous, next;  // indices, -1 at the ends
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t position;  // of the left symbol

    // For std heaps, which keep the greatest in front: the lowest rank, leftmost first.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };

  // Adds the pair that begins at `position` to `heap_`, not yet in heap order; false: no rule.
  bool consider(std::int32_t position);

  const BpeModel* model_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace frt::models
