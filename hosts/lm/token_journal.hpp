// SPDX-License-Identifier: Apache-2.0
// token_journal.hpp - what was fed to a slot, and in which steps.
//
// The same tokens cut differently give states that differ in their last bits, so a journal keeps
// the cuts beside the tokens. Prefill steps end at absolute multiples of the chunk unless
// something else ended them; a stretch is what can be told by its two ends.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace frt::host {

// Tokens [begin, end): one per step if `decode`, else cut at the multiples of the chunk between
// them. `other_build`: another build of the plugins computed them, so their rounding is not ours.
struct Stretch {
  bool decode = false;
  uint64_t begin = 0, end = 0;
  bool other_build = false;
  bool operator==(const Stretch&) const = default;
};

// From 0 on without gaps.
using FeedPath = std::vector<Stretch>;

// The most tokens that a file may speak of: a gigabyte of ids.
constexpr uint64_t kMostTokens = uint64_t{1} << 28;

// Where the prefill step that starts at `begin` ends: at a multiple of `chunk`, or at `limit`.
inline uint64_t prefill_end(uint64_t begin, uint64_t limit, uint64_t chunk) {
  const uint64_t edge = (begin / chunk + 1) * chunk;
  return edge < limit ? edge : limit;
}

// A step ends at `boundary`, or it is 0.
bool is_cut(const FeedPath& path, uint64_t chunk, uint64_t boundary);

// The part before `boundary`, which must be a cut.
FeedPath path_until(const FeedPath& path, uint64_t boundary);

// A cold prefill passes through this state: nothing but prefill from 0, up to a multiple of the
// chunk, by this build. What follows such a boundary equals the cold run bit for bit.
bool on_cold_path(const FeedPath& path, uint64_t chunk);

// Another build computed a part of it.
bool has_other_build(const FeedPath& path);
// All of it comes from another build.
void set_other_build(FeedPath& path);

// Calls step(begin, end, decode) for every step of the path.
void for_each_step(const FeedPath& path, uint64_t chunk,
                   const std::function<void(uint64_t begin, uint64_t end, bool decode)>& step);

// [["prefill", 0, 8192], ["decode", 8192, 8210]] and back; what another build computed is
// ["prefill", 0, 8192, "other-build"]. Throws FRT_ERR_FORMAT if it is not a path of `tokens`
// tokens, or if these are more than kMostTokens.
nlohmann::ordered_json path_to_json(const FeedPath& path);
FeedPath path_from_json(const nlohmann::ordered_json& json, uint64_t tokens);

class TokenJournal {
 public:
  // `chunk`: the model's prefill_chunk.
  explicit TokenJournal(uint64_t chunk) : chunk_(chunk) {}

  // One prefill step was submitted. Throws FRT_ERR_INTERNAL if it crosses a multiple of the chunk.
  void prefill(std::span<const int32_t> tokens);
  // One decode step fed `token`.
  void decode(int32_t token);
  // Takes over what a capsule holds.
  void assign(std::vector<int32_t> tokens, FeedPath path);
  void clear() noexcept;
  // Room for so many tokens, and for what follows a prompt.
  void reserve(uint64_t tokens);

  uint64_t size() const noexcept { return tokens_.size(); }
  uint64_t chunk() const noexcept { return chunk_; }
  const std::vector<int32_t>& tokens() const noexcept { return tokens_; }
  const FeedPath& path() const noexcept { return path_; }

 private:
  uint64_t chunk_;
  std::vector<int32_t> tokens_;
  FeedPath path_;
};

// How many tokens two lists have in common at their start.
uint64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace frt::host
