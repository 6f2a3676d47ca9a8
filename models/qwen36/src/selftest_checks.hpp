// SPDX-License-Identifier: Apache-2.0
// selftest_checks.hpp - comparisons of computed values with goldens, and the gates.
//
// The gates are those of the goldens' own documentation. In f32: absolute limits, ids equal. With
// bf16 anywhere: the cosine of logits rows, the relative error of states, argmax where the best two
// logits are apart; a mixture of experts may flip an expert at a near tie, so a share of its rows
// may be off. Tensors in between, which have no documented bf16 gate, are held to a mean cosine.
#pragma once

#include <frt/selftest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace frt::qwen36 {

// What a tensor is, which decides its gate.
enum class Quantity : std::uint8_t {
  kLogits,  // rows of logits
  kRows,    // rows of activations, keys, values
  kState,   // S and convolution windows
};

class Checks {
 public:
  // `exact`: activations, residual and cache are all f32. `mixture`: experts may flip.
  Checks(frt_selftest_report report, void* user, bool exact, bool mixture)
      : report_(report), user_(user), exact_(exact), mixture_(mixture) {}

  bool exact() const noexcept { return exact_; }

  // Rows of `width` values. Throws FRT_ERR_MISMATCH if the sizes differ.
  void values(const std::string& name, Quantity quantity, std::span<const float> computed,
              std::span<const float> golden, std::int64_t width);
  // Ids that must be equal.
  void ids(const std::string& name, std::span<const std::int32_t> computed,
           std::span<const std::int32_t> golden);
  // A greedy path. With bf16 it may leave the golden one where the two best golden logits of that
  // step are close; `golden_logits` holds one row of `width` per id, or is empty.
  void path(const std::string& name, std::span<const std::int32_t> computed,
            std::span<const std::int32_t> golden, std::span<const float> golden_logits,
            std::int64_t width);
  // Sets of `width` experts per row; with bf16 a tenth may differ.
  void experts(const std::string& name, std::span<const std::int32_t> computed,
               std::span<const std::int32_t> golden, std::int64_t width);
  // Counts whose sum, with bf16, may differ by a quarter.
  void counts(const std::string& name, std::span<const std::int32_t> computed,
              std::span<const std::int32_t> golden);
  // Two texts.
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

}  // namespace frt::qwen36
