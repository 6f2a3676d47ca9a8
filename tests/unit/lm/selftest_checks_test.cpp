// SPDX-License-Identifier: Apache-2.0
// The gates must be able to fail: each is given values just inside and just outside.
#include <doctest/doctest.h>
#include <frt/error.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <frt/lm/selftest_checks.hpp>
#include <frt/lm/selftest_routing.hpp>

using namespace frt::lm;

namespace {

struct Verdicts {
  std::vector<std::uint32_t> all;
  std::uint32_t last() const { return all.back(); }
  Checks checks(bool exact, bool mixture) {
    return Checks(
        [](void* user, const frt_selftest_row* row) -> frt_status {
          static_cast<Verdicts*>(user)->all.push_back(row->verdict);
          return FRT_OK;
        },
        this, exact, mixture);
  }
};

const std::vector<float> kGolden = {1, 2, 3, 4, 4, 3, 2, 0};

std::vector<float> shifted(float by) {
  std::vector<float> values = kGolden;
  values[2] += by;
  return values;
}

}  // namespace

TEST_CASE("f32 gates are absolute: 1e-3 for rows, 1e-4 for states") {
  Verdicts verdicts;
  Checks checks = verdicts.checks(true, false);
  checks.values("rows", Quantity::kRows, shifted(9e-4f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  checks.values("rows", Quantity::kRows, shifted(1.1e-3f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  checks.values("state", Quantity::kState, shifted(9e-5f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  checks.values("state", Quantity::kState, shifted(1.1e-4f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
}

TEST_CASE("a value that is not finite fails every gate") {
  for (const bool exact : {true, false}) {
    Verdicts verdicts;
    Checks checks = verdicts.checks(exact, true);
    for (const Quantity quantity : {Quantity::kLogits, Quantity::kRows, Quantity::kState}) {
      checks.values("x", quantity, shifted(std::numeric_limits<float>::quiet_NaN()), kGolden, 4);
      CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    }
  }
}

TEST_CASE("bf16 gates look at cosines, relative errors and clear argmaxes") {
  Verdicts verdicts;
  Checks dense = verdicts.checks(false, false);
  dense.values("logits", Quantity::kLogits, shifted(0.05f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  dense.values("logits", Quantity::kLogits, shifted(2.0f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  dense.values("S", Quantity::kState, shifted(0.2f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  dense.values("S", Quantity::kState, shifted(0.4f), kGolden, 4);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
}

TEST_CASE("zeros in place of values fail every gate, a row of them too") {
  const std::vector<float> nothing(kGolden.size());
  std::vector<float> half = kGolden;
  std::fill(half.begin(), half.begin() + 4, 0.0f);
  for (const bool exact : {true, false}) {
    for (const bool mixture : {true, false}) {
      CAPTURE(exact);
      CAPTURE(mixture);
      Verdicts verdicts;
      Checks checks = verdicts.checks(exact, mixture);
      for (const Quantity quantity : {Quantity::kLogits, Quantity::kRows, Quantity::kState}) {
        checks.values("x", quantity, nothing, kGolden, 4);
        CHECK(verdicts.last() == FRT_VERDICT_FAIL);
        checks.values("x", quantity, half, kGolden, 4);
        CHECK(verdicts.last() == FRT_VERDICT_FAIL);
      }
      checks.values("x", Quantity::kRows, nothing, nothing, 4);
      CHECK(verdicts.last() == FRT_VERDICT_PASS);
    }
  }
}

TEST_CASE("zeros fail an absolute gate where the golden values are below its limit") {
  const std::vector<float> small = {1e-5f, -2e-5f, 1e-6f, 3e-5f};
  Verdicts verdicts;
  Checks checks = verdicts.checks(true, false);
  for (const Quantity quantity : {Quantity::kRows, Quantity::kState}) {
    checks.values("x", quantity, std::vector<float>(4), small, 4);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.values("x", quantity, small, small, 4);
    CHECK(verdicts.last() == FRT_VERDICT_PASS);
  }
}

TEST_CASE("one row of zeros among many does not hide behind the others' cosines") {
  std::vector<float> golden(40 * 4, 1.0f), computed = golden;
  std::fill(computed.begin() + 8, computed.begin() + 12, 0.0f);
  for (const bool mixture : {true, false}) {
    Verdicts verdicts;
    Checks checks = verdicts.checks(false, mixture);
    for (const Quantity quantity : {Quantity::kLogits, Quantity::kRows}) {
      checks.values("x", quantity, computed, golden, 4);
      CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    }
  }
}

TEST_CASE("a tensor without values proves nothing") {
  for (const bool exact : {true, false}) {
    Verdicts verdicts;
    Checks checks = verdicts.checks(exact, false);
    checks.values("x", Quantity::kRows, {}, {}, 4);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.ids("ids", {}, {});
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.path("greedy", {}, {}, {});
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.counts("counts", {}, {});
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.experts("experts", {}, {}, 2);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.text("text", "", "");
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  }
}

TEST_CASE("few rows of a mixture: with the golden's experts each is close, flipped ones are not") {
  constexpr std::size_t kRows = 6;
  std::vector<float> golden, flipped;
  for (std::size_t r = 0; r < kRows; ++r) {
    golden.insert(golden.end(), {4, 3, 2, 1});
    flipped.insert(flipped.end(), {4, 3, 2, 2.5f});  // a cosine of 0.967
  }
  const auto with = [&](std::initializer_list<std::size_t> rows) {
    std::vector<float> values = golden;
    for (const std::size_t r : rows) {
      std::copy_n(flipped.begin() + static_cast<std::ptrdiff_t>(4 * r), 4,
                  values.begin() + static_cast<std::ptrdiff_t>(4 * r));
    }
    return values;
  };
  constexpr Routing kSame = Routing::kSame, kOther = Routing::kOther, kUnknown = Routing::kUnknown;
  const std::vector<Routing> same(kRows, kSame);
  const std::vector<Routing> some = {kSame, kSame, kOther, kSame, kUnknown, kUnknown};
  for (const Quantity quantity : {Quantity::kLogits, Quantity::kRows}) {
    Verdicts verdicts;
    Checks checks = verdicts.checks(false, true);
    const auto verdict = [&](const std::vector<float>& values, const std::vector<Routing>& routed) {
      checks.values("x", quantity, values, golden, 4, routed);
      return verdicts.last();
    };
    CHECK(verdict(with({}), same) == FRT_VERDICT_PASS);
    CHECK(verdict(with({2}), same) == FRT_VERDICT_FAIL);     // the golden's experts
    CHECK(verdict(with({2}), some) == FRT_VERDICT_PASS);     // flipped
    CHECK(verdict(with({3}), some) == FRT_VERDICT_FAIL);     // not the flipped one
    CHECK(verdict(with({4}), some) == FRT_VERDICT_PASS);     // of which it is not known
    CHECK(verdict(with({4, 5}), some) == FRT_VERDICT_FAIL);  // two of six
    CHECK(verdict(with({2, 4}), some) == FRT_VERDICT_FAIL);  // one flipped, one not known
    CHECK(verdict(with({2}), {}) == FRT_VERDICT_FAIL);       // 0.967, and nothing is known
    std::vector<float> unrelated = golden;
    for (std::size_t i = 8; i < 12; ++i) unrelated[i] *= -1;
    CHECK(verdict(unrelated, some) == FRT_VERDICT_FAIL);
  }
}

TEST_CASE("few rows of a mixture that all flipped an expert are not excused") {
  constexpr std::size_t kRows = 6;
  std::vector<float> golden, flipped;  // the wrong argmax, at a cosine of 0.972
  for (std::size_t r = 0; r < kRows; ++r) {
    golden.insert(golden.end(), {4, 3, 2, 1});
    flipped.insert(flipped.end(), {4, 4.5f, 2, 1});
  }
  const std::vector<Routing> routed(kRows, Routing::kOther);
  for (const Quantity quantity : {Quantity::kLogits, Quantity::kRows}) {
    Verdicts verdicts;
    Checks checks = verdicts.checks(false, true);
    checks.values("x", quantity, flipped, golden, 4, routed);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.values("x", quantity, golden, golden, 4, routed);
    CHECK(verdicts.last() == FRT_VERDICT_PASS);
  }
  // At a cosine of 0.991, and the wrong argmax again.
  Verdicts verdicts;
  Checks checks = verdicts.checks(false, true);
  std::vector<float> near = golden;
  const auto flip = [&](std::size_t r) {
    near[4 * r] = 3.7f;
    near[4 * r + 1] = 3.75f;
  };
  flip(0);
  checks.values("x", Quantity::kLogits, near, golden, 4, routed);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  flip(3);
  checks.values("x", Quantity::kLogits, near, golden, 4, routed);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
}

TEST_CASE("a greedy path may part in bf16 only where the golden logits of the two ids are close") {
  const std::vector<std::int32_t> golden = {1, 2, 3};
  const std::vector<std::int32_t> other = {1, 0, 3};
  const std::vector<float> close = {0, 5, 0, 0, 1.8f, 0, 2, 0, 0, 0, 0, 5};
  const std::vector<float> clear = {0, 5, 0, 0, 1, 0, 2, 0, 0, 0, 0, 5};
  using Rows = std::vector<std::span<const float>>;
  const auto rows = [](const std::vector<float>& values) {
    Rows made;
    for (std::size_t at = 0; at < values.size(); at += 4) {
      made.push_back(std::span(values).subspan(at, 4));
    }
    return made;
  };
  Verdicts verdicts;
  const auto verdict = [&](bool exact, const std::vector<std::int32_t>& ids, const Rows& logits) {
    verdicts.checks(exact, false).path("greedy", ids, golden, logits);
    return verdicts.last();
  };
  CHECK(verdict(false, other, rows(close)) == FRT_VERDICT_PASS);
  CHECK(verdict(false, other, rows(clear)) == FRT_VERDICT_FAIL);
  CHECK(verdict(true, other, rows(close)) == FRT_VERDICT_FAIL);
  CHECK(verdict(true, golden, rows(close)) == FRT_VERDICT_PASS);
  // Close are ids 2 and 0; an id that is far behind both is no close call.
  CHECK(verdict(false, {1, 3, 3}, rows(close)) == FRT_VERDICT_FAIL);
  CHECK(verdict(false, {1, 99, 3}, rows(close)) == FRT_VERDICT_FAIL);
  // Without golden logits nothing says that the call was close.
  CHECK(verdict(false, other, {}) == FRT_VERDICT_FAIL);
  CHECK(verdict(false, other, Rows(3)) == FRT_VERDICT_FAIL);
  CHECK(verdict(false, golden, {}) == FRT_VERDICT_PASS);
  CHECK(verdict(false, {1, 2}, rows(close)) == FRT_VERDICT_FAIL);
  std::vector<float> nan = close;
  nan[4] = std::numeric_limits<float>::quiet_NaN();
  CHECK(verdict(false, other, rows(nan)) == FRT_VERDICT_FAIL);
}

TEST_CASE("equal bits that are no numbers are not equal") {
  Verdicts verdicts;
  Checks checks = verdicts.checks(false, false);
  checks.bits("graph", kGolden, kGolden);
  CHECK(verdicts.last() == FRT_VERDICT_PASS);
  checks.bits("graph", shifted(1e-6f), kGolden);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
  const auto nan = shifted(std::numeric_limits<float>::quiet_NaN());
  checks.bits("graph", nan, nan);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
}

TEST_CASE("a row took the golden's way if its experts and those of the rows before it did") {
  // Two layers, positions 3, 4 and 9, two of some experts each; one row of reach.
  const GoldenRouting golden({{3, 4, 9}, {1, 2, 3, 4, 5, 6, 1, 3, 2, 4, 7, 8}}, 2, 1);
  using List = std::vector<Routing>;
  constexpr Routing kSame = Routing::kSame, kOther = Routing::kOther, kUnknown = Routing::kUnknown;
  CHECK(golden.layers() == 2);
  CHECK(golden.positions(4) == std::vector<std::int32_t>{3, 4});
  CHECK(golden.positions(9) == std::vector<std::int32_t>{9});
  CHECK(golden.positions(6).empty());
  // The golden's experts in another order, but for position 3 in layer 1.
  const RoutedRows run = {{3, 4, 9}, {2, 1, 3, 4, 6, 5, 1, 0, 2, 4, 7, 8}};
  CHECK(golden.of(4, 0, run) == kSame);
  CHECK(golden.of(4, 1, run) == kSame);
  CHECK(golden.of(4, 2, run) == kOther);    // the row before it
  CHECK(golden.of(3, 1, run) == kUnknown);  // position 2 is not known
  CHECK(golden.of(3, 2, run) == kOther);
  CHECK(golden.of(9, 2, run) == kUnknown);
  CHECK(golden.after_layers(run) == List{kUnknown, kSame, kUnknown, kOther, kOther, kUnknown});
  CHECK(golden.before_layers(run) == List{kUnknown, kSame, kUnknown, kUnknown, kSame, kUnknown});
  CHECK(golden.at(std::vector<std::int32_t>{4, 7}, run) == List{kOther, kUnknown});
  // A run that traced one position alone.
  CHECK(golden.of(4, 2, {{4}, {3, 4, 4, 2}}) == kUnknown);
  CHECK(golden.of(4, 2, {{4}, {3, 4, 4, 9}}) == kOther);
  CHECK(golden.of(4, 2, {{4}, {3, 4}}) == kUnknown);  // of fewer layers
  CHECK(GoldenRouting().after_layers(run).empty());
  CHECK(GoldenRouting().at(std::vector<std::int32_t>{4}, run).empty());
  CHECK(GoldenRouting().positions(4).empty());
}

TEST_CASE("goldens of another size are an error, not a verdict") {
  Verdicts verdicts;
  Checks checks = verdicts.checks(true, false);
  CHECK_THROWS_AS(checks.values("x", Quantity::kRows, std::vector<float>(4), kGolden, 4),
                  frt::Error);
  CHECK(verdicts.all.empty());
}
