// SPDX-License-Identifier: Apache-2.0
#include "lm/token_digest.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <charconv>
#include <frt/error.hpp>

namespace frt::host {

static_assert(std::endian::native == std::endian::little, "tokens are hashed as they lie");

struct PrefixHasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (!xxh) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

PrefixHasher::PrefixHasher(std::string_view owner) : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(state_->xxh);
  const uint64_t length = owner.size();
  XXH3_128bits_update(state_->xxh, &length, sizeof(length));
  XXH3_128bits_update(state_->xxh, owner.data(), owner.size());
}

PrefixHasher::~PrefixHasher() = default;

void PrefixHasher::append(std::span<const int32_t> tokens) {
  XXH3_128bits_update(state_->xxh, tokens.data(), tokens.size_bytes());
}

TokenDigest PrefixHasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.high64, hash.low64};
}

TokenDigest digest_of(std::string_view owner, std::span<const int32_t> tokens) {
  PrefixHasher hasher(owner);
  hasher.append(tokens);
  return hasher.digest();
}

std::string to_text(const TokenDigest& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

TokenDigest digest_from_text(std::string_view text) {
  TokenDigest digest;
  const auto parse = [&](std::size_t at, uint64_t& value) {
    const char* end = text.data() + at + 16;
    const auto result = std::from_chars(text.data() + at, end, value, 16);
    return result.ec == std::errc() && result.ptr == end;
  };
  if (text.size() != 32 || !parse(0, digest.high) || !parse(16, digest.low)) {
    throw Error(FRT_ERR_FORMAT, "a token digest has 32 hexadecimal digits");
  }
  return digest;
}

}  // namespace frt::host
