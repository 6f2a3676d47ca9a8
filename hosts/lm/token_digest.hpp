// SPDX-License-Identifier: Apache-2.0
// token_digest.hpp - digests of token prefixes, to find a capsule among many. A digest only finds:
// what it found is confirmed by comparing the tokens.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace frt::host {

// XXH3 of 128 bits over the owner's name and the tokens, i32 little endian.
struct TokenDigest {
  uint64_t high = 0, low = 0;
  auto operator<=>(const TokenDigest&) const = default;
};

// 32 hexadecimal digits, and back. Throws FRT_ERR_FORMAT.
std::string to_text(const TokenDigest& digest);
TokenDigest digest_from_text(std::string_view text);

// The digests of growing prefixes of one list, each token being read once.
class PrefixHasher {
 public:
  // Prefixes of different owners have different digests.
  explicit PrefixHasher(std::string_view owner);
  ~PrefixHasher();
  PrefixHasher(const PrefixHasher&) = delete;
  PrefixHasher& operator=(const PrefixHasher&) = delete;

  void append(std::span<const int32_t> tokens);
  // Of everything appended so far.
  TokenDigest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

TokenDigest digest_of(std::string_view owner, std::span<const int32_t> tokens);

}  // namespace frt::host
