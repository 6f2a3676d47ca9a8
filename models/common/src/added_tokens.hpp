// SPDX-License-Identifier: Apache-2.0
// Finds added tokens in a text: leftmost, then longest, over a trie of bytes.
#pragma once

#include <frt/models/tokenizer.hpp>

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace frt::models {

// A part of a text: an added token, or (id < 0) what stands between.
struct Section {
  std::string_view text;
  TokenId id = -1;
};

class AddedTokenMatcher {
 public:
  // `content` is what is looked for (not empty, unique); `token` gives id and flags.
  void add(std::string_view content, const AddedToken& token);

  bool empty() const { return patterns_.empty(); }

  // Calls `visit` with the sections of `text`, none of them empty, in order. No token touches a
  // byte of `plain` (sorted, disjoint), but by the white space it takes beside it.  [any]
  void split(std::string_view text, std::span<const TextRange> plain,
             const std::function<void(const Section&)>& visit) const;

 private:
  struct Pattern {
    TokenId id;
    bool lstrip, rstrip, single_word;
  };
  struct Match {
    std::size_t length = 0;
    std::int32_t pattern = -1;
  };

  Match longest_at(std::string_view text, std::size_t at) const;

  std::vector<Pattern> patterns_;
  std::vector<std::int32_t> ending_{-1};  // per trie node: the pattern that ends there, or -1
  boost::unordered_flat_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::array<bool, 256> first_{};                                     // bytes a token starts with
};

}  // namespace frt::models
