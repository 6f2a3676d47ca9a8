// SPDX-License-Identifier: Apache-2.0
// expected.hpp - what a tensor must hold by the operators' headers, computed here in double from
// the inputs of a case: no backend judges itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <frt/error.hpp>

#include "numbers.hpp"

namespace frt::conformance {

// One value per element of a tensor, and how far from it a result may be. Elements that nothing was
// said about must be left as they are.
class Expected {
 public:
  Expected(frt_dtype dtype, int64_t count)
      : dtype_(dtype), elements_(static_cast<std::size_t>(count)) {}

  // At most `bound` away; 0: this value, NaN: a NaN. `deviation` > 0: that of an error which every
  // such value has by itself; all of them together are judged, too.
  void value(int64_t index, double value, double bound = 0, double deviation = 0);
  // The code nearest to `value`; of NaN any.
  void code(int64_t index, double value);
  // Anything, or nothing.
  void ignore(int64_t first, int64_t count);

  // The first complaint about `result`, which was `initial` before, or an empty text.
  std::string judge(const std::string& name, std::span<const std::byte> initial,
                    std::span<const std::byte> result) const;

 private:
  enum class Rule : std::uint8_t { kLeave, kNear, kCode, kIgnore };
  struct Element {
    Rule rule = Rule::kLeave;
    double value = 0, bound = 0, deviation = 0;
  };
  frt_dtype dtype_;
  std::vector<Element> elements_;
};

// ---- products ---------------------------------------------------------------------------------

// What a backend may round bf16 (or f32) inputs x of products with weights of some formats to.
enum class Rounding : std::uint8_t {
  kNone,
  kFp8,  // e4m3 with a scale for each row or for some values of it
  kFp4,  // NVFP4: e2m1 with an e4m3 scale for each 16 values, and a scale for all or for a row
};

// One output of a product, and how far from it a backend may be that multiplies exactly, adds in
// f32 and rounds once. Of random inputs.
//
// A sum of K products of random signs is a walk: with q^2 the sum of the squared products, its
// partial sums, in whatever order, are of the size q. Each of K additions rounds or truncates (as
// tensor cores do) a partial sum by at most 2^-23 of it. So the sum is within K 2^-23 q. A single
// input is q / sqrt(K) of it: 7 times the bound at K = 17,408, and more than that below.
//
// `weights_rounded`: the backend may dequantise weights to bf16, each by a factor within 2^-8 of
// one. The errors add up like the products: their deviation is at most 2^-8 q, and is 0.42 of that
// where fractions are spread evenly. Three of these deviations, 5 2^-10 q, leave one value in 370
// outside, so that many values are allowed six: 10 2^-10 q.
//
// kFp8: the backend may round x to e4m3, scaled so that the largest of some values becomes
// 448. Each then is within a factor of 2^-4 of itself, 16 times as far as above: 10 2^-6 q. Below
// 2^-6 / 448 of the largest the steps of the format end, and a value is within 2^-10 / 448 of the
// largest instead: six times the walk of such errors is allowed, too.
//
// kFp4: 16 values have a scale s of a sixth of their largest, rounded to e4m3: at most 17/16 of it.
// Steps of e2m1 are s/2 up to 2 s, s up to 4 s and 2 s up to 6 s, and what is beyond 6 s by the
// rounding of s is less than a step away, so a value is within max(s, |value|) / 4 of itself. A
// scale below 2^-6 is within 2^-10 of what the largest of x / 2688 or twice that stands for, so six
// of them are added. The deviation of the sum is at most the walk of these errors, D, and is 0.38 D
// where fractions are spread evenly. Each value may have more than six of these, 2.5 D, which is
// 0.7 of a typical sum. What one value hides all of them show: the root of the mean of (error /
// D)^2 must not be above 0.5. That of 200 sound values is 0.38 with a deviation of 0.02.
struct Product {
  double sum = 0;
  double bound = 0;
  double deviation = 0;  // D; 0: not rounded to FP4
};
inline constexpr double kMostDeviation = 0.5;
Product product(std::span<const double> x, std::span<const double> weight, bool weights_rounded,
                Rounding x_rounding = Rounding::kNone);

// The same for y += product, or y = product, rounded to the type of y.
Product rounded_product(const Product& product, double before, frt_dtype y_dtype);

}  // namespace frt::conformance
