// SPDX-License-Identifier: Apache-2.0
// speculation.hpp - how many tokens are drafted. Drafts never change what is written, so this is
// about time alone: a round of d drafts writes as many tokens as are accepted, plus one, and takes
// longer than a plain step.
//
// Both sides are measured. Acceptance: of each sequence, for the first draft, the second, and so
// on, given that the ones before were accepted; a new sequence begins with what the ones before it
// had. Cost: of a round, by sequences and drafts. The number with the most expected tokens per
// second is taken, and that may be 0. Now and then another one is tried, so that neither side grows
// old.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lm/drafting.hpp"

namespace frt::host {

// How often the drafts of one sequence are accepted.
struct Acceptance {
  static constexpr std::size_t kMost = 8;  // drafts that are told apart; later ones count as these

  std::array<float, kMost> rates{};  // of draft i, where those before it were

  // `drafts` were fed, and `accepted` of them were right.
  void add(uint32_t drafts, uint32_t accepted) noexcept;
  // Tokens that a round of `drafts` writes.
  double expected(uint32_t drafts) const noexcept;
};

class DraftPlanner {
 public:
  // `most[b]`: drafts that a round of b sequences can have; most[0] is not used. Empty: none ever.
  DraftPlanner(Drafting mode, std::vector<uint32_t> most);  // [setup]

  bool enabled() const noexcept { return enabled_; }
  // What a sequence begins with.
  const Acceptance& usual() const noexcept { return usual_; }
  // The drafts of the next step of sequences that are accepted so often.
  uint32_t drafts(std::span<const Acceptance* const> sequences) const noexcept;
  // A step of `batch` sequences with so many drafts, 0 for a plain one, was submitted ...
  void submitted() noexcept { ++steps_; }
  // ... and took so long.
  void measured(std::size_t batch, uint32_t drafts, double seconds) noexcept;
  // One sequence of a round.
  void accepted(uint32_t drafts, uint32_t accepted) noexcept { usual_.add(drafts, accepted); }

 private:
  double cost(std::size_t batch, uint32_t drafts) const noexcept;

  Drafting mode_;
  std::vector<uint32_t> most_;
  bool enabled_ = false;
  Acceptance usual_;
  uint32_t widest_ = 0;        // the most drafts of any batch
  std::vector<double> costs_;  // (batch, drafts) seconds; 0: not known
  uint64_t steps_ = 0;
};

}  // namespace frt::host
