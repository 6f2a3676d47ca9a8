// SPDX-License-Identifier: Apache-2.0
// frt/lm/selftest_checks.hpp - comparisons of computed values with goldens, and the gates.
//
// The gates are those of the goldens' own documentation. In f32: absolute limits, ids equal. With
// bf16 anywhere: the cosine of logits rows, the relative error of states, argmax where the best two
// logits are apart. Tensors in between, which have no documented bf16 gate, are held to a mean
// cosine. No gate passes a value that is not finite, an empty tensor, or zeros in place of values.
//
// A mixture of experts may flip an expert at a near tie, so a share of its rows may be off. A share
// says little about few rows. Below 20 rows every row that took the golden's way (selftest_routing
// .hpp) is held to the cosine of a dense model, 0.999. A row that flipped is held to 0.99, one of
// which the goldens do not say it to 0.999, but for one or a tenth of all rows, which may be as far
// as 0.9; so many argmaxes may differ where they are clear. Where the goldens say nothing of any
// row, as of a draft head's, every cosine is above 0.98 and the mean above 0.99.
#pragma once

#include <frt/selftest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frt::lm {

// What a tensor is, which decides its gate.
enum class Quantity : std::uint8_t {
  kLogits,  // rows of logits
  kRows,    // rows of activations, keys, values
  kState,   // S and convolution windows
};

// Whether a row took the way of the golden one through the experts.
enum class Routing : std::uint8_t {
  kUnknown,  // the goldens do not say
  kSame,
  kOther,
};

class Checks {
 public:
  // `exact`: activations, residual and cache are all f32. `mixture`: experts may flip.
  Checks(frt_selftest_report report, void* user, bool exact, bool mixture)
      : report_(report), user_(user), exact_(exact), mixture_(mixture) {}

  bool exact() const noexcept { return exact_; }

  // Rows of `width` values. `routing` has one entry per row, or none. Throws FRT_ERR_MISMATCH if
  // the sizes differ.
  void values(const std::string& name, Quantity quantity, std::span<const float> computed,
              std::span<const float> golden, std::int64_t width,
              std::span<const Routing> routing = {});
  // Ids that must be equal.
  void ids(const std::string& name, std::span<const std::int32_t> computed,
           std::span<const std::int32_t> golden);
  // A greedy path. With bf16 it may leave the golden one at a step where the golden logits of the
  // two ids are close. `golden_logits` has the golden row of each step; an empty row, of a step
  // whose logits the goldens do not hold, excuses nothing.
  void path(const std::string& name, std::span<const std::int32_t> computed,
            std::span<const std::int32_t> golden,
            std::span<const std::span<const float>> golden_logits);
  // Two runs of the same model: equal bits, all of them finite.
  void bits(const std::string& name, std::span<const float> computed,
            std::span<const float> golden);
  // Sets of `width` experts per row; with bf16 a tenth may differ. Throws FRT_ERR_MISMATCH if the
  // sizes differ.
  void experts(const std::string& name, std::span<const std::int32_t> computed,
               std::span<const std::int32_t> golden, std::int64_t width);
  // Counts whose sum, with bf16, may differ by a quarter.
  void counts(const std::string& name, std::span<const std::int32_t> computed,
              std::span<const std::int32_t> golden);
  // Two texts, the golden one not empty.
  void text(const std::string& name, const std::string& computed, const std::string& golden);
  void skip(const std::string& name, const std::string& why);

 private:
  void send(const std::string& name, const std::string& gate, bool pass, std::uint64_t count,
            frt_selftest_row row);

  frt_selftest_report report_;
  void* user_;
  bool exact_;
  bool mixture_;
};

}  // namespace frt::lm
