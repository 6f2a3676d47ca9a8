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

// What a pair of neighbouring tokens becomes; lower ranks merge first.
struct Merge {
  std::uint32_t rank;
  TokenId id;
};

struct BpeModel {
  std::array<TokenId, 256> id_of_byte{};
  boost::unordered_flat_map<std::uint64_t, Merge> merges;  // left id << 32 | right id

  static std::uint64_t pair(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
};

// Scratch memory of encode_word(), kept between words by one thread.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(&model) {}

  // Appends the ids of `word` (any bytes).
  void encode(std::string_view word, std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId id;
    std::int32_t previous, next;  // indices, -1 at the ends
    bool alive;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t position;  // of the left symbol
    TokenId id;             // what the two become
    TokenId left, right;    // what they were when this was found

    // For std heaps, which keep the greatest in front: the lowest rank, leftmost first.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };

  void consider(std::int32_t position);

  const BpeModel* model_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace frt::models
