// SPDX-License-Identifier: Apache-2.0
// What a policy's self-test reads from golden files, and that its gates can fail.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <frt/error.hpp>
#include <frt/models/safetensors_writer.hpp>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "selftest_plan.hpp"

using namespace frt::pi05;

namespace {

namespace fs = std::filesystem;

// A golden file of one-dimensional tensors, but for time.cond, which has rows of two.
class GoldenFile {
 public:
  GoldenFile& values(const std::string& name, const std::vector<float>& data) {
    floats_[name] = data;
    return *this;
  }
  GoldenFile& ids(const std::string& name, const std::vector<std::int32_t>& data) {
    integers_[name] = data;
    return *this;
  }
  Goldens read() const {
    std::string pattern = (fs::temp_directory_path() / "frt-plan-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()));
    const fs::path file = fs::path(pattern) / "any.safetensors";
    {
      frt::models::SafetensorsWriter writer(file);
      for (const auto& [name, data] : floats_) {
        if (name == "time.cond") {
          writer.declare(name, FRT_DTYPE_F32, {data.size() / 2, 2});
        } else {
          writer.declare(name, FRT_DTYPE_F32, {data.size()});
        }
      }
      for (const auto& [name, data] : integers_) {
        writer.declare(name, FRT_DTYPE_I32, {data.size()});
      }
      for (const auto& [name, data] : floats_) writer.write(name, std::as_bytes(std::span(data)));
      for (const auto& [name, data] : integers_) {
        writer.write(name, std::as_bytes(std::span(data)));
      }
      writer.finish();
    }
    CHECK(holds_network(file) == integers_.contains("in.tokens"));
    Goldens goldens(file);
    fs::remove_all(pattern);
    return goldens;
  }

 private:
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<std::int32_t>> integers_;
};

GoldenFile inputs() {
  GoldenFile file;
  file.ids("in.tokens", {1, 2});
  return file;
}

using Mask = std::vector<std::int32_t>;

struct Verdicts {
  std::vector<std::uint32_t> all;
  std::vector<std::string> gates;
  std::uint32_t last() const { return all.back(); }
  Checks checks(Gates gates_of) {
    return Checks(
        [](void* user, const frt_selftest_row* row) -> frt_status {
          static_cast<Verdicts*>(user)->all.push_back(row->verdict);
          static_cast<Verdicts*>(user)->gates.emplace_back(row->gate);
          return FRT_OK;
        },
        this, gates_of);
  }
};

const std::vector<float> kGolden = {1, 2, 3, 4, 4, 3, 2, 0};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("runs, strengths, step counts and horizons come from the names of the file") {
  const Goldens goldens = inputs()
                              .ids("left.mask", {1, 0, 0})
                              .ids("v011.mask", {0, 1, 1})
                              .values("v011.v0", {1, 2})
                              .values("v011.v4", {1, 2})
                              .values("time.cond", std::vector<float>(12))
                              .values("cfg1.7.actions", {1})
                              .values("cfg3.actions", {1})
                              .values("steps2.actions", {1})
                              .values("steps117.actions", {1})
                              .values("h13.noise", {1})
                              .values("rtc.ramp.actions", {1})
                              .values("rtc.lock.actions", {1})
                              .read();
  const GoldenPlan plan = read_plan(goldens, 3, 10);
  REQUIRE(plan.views.size() == 2);
  CHECK(plan.views[0].name == "left");
  CHECK(plan.views[0].mask == Mask{1, 0, 0});
  CHECK(plan.views[1].mask == Mask{0, 1, 1});
  CHECK(plan.steps == 5);
  REQUIRE(plan.guided.size() == 2);
  CHECK(plan.guided[0].beta == 1.7f);
  CHECK(plan.guided[1].name == "cfg3");
  REQUIRE(plan.step_counts.size() == 2);
  CHECK(plan.step_counts[0].number + plan.step_counts[1].number == 119);
  REQUIRE(plan.horizons.size() == 1);
  CHECK(plan.horizons[0].number == 13);
  REQUIRE(plan.continued.size() == 1);
  CHECK(plan.continued[0].schedule == "ramp");
}

TEST_CASE("a run without a mask is named by its views") {
  const Goldens goldens = inputs()
                              .values("v2.actions", {1})
                              .values("v011.actions", {1})
                              .values("v3.v0", {1})
                              .values("value.actions", {1})
                              .read();
  const GoldenPlan plan = read_plan(goldens, 3, 10);
  std::map<std::string, Mask> masks;
  for (const ViewRun& run : plan.views) masks[run.name] = run.mask;
  CHECK(masks ==
        std::map<std::string, Mask>{{"v2", {1, 1, 0}}, {"v011", {0, 1, 1}}, {"v3", {1, 1, 1}}});
  CHECK(plan.base_run().name == "v2");
  CHECK(plan.steps == 1);  // v3.v0
}

TEST_CASE("the base run is the one that the tensors show, not the first or a name") {
  const auto file = [] {
    return inputs()
        .ids("a.mask", {1, 1, 1})
        .values("a.v0", {1, 2})
        .values("a.actions", {5, 6})
        .ids("v2.mask", {1, 1, 0})
        .values("v2.v0", {3, 4})
        .values("v2.actions", {7, 8})
        .ids("z.mask", {1, 0, 0})
        .values("z.v0", {3, 5})
        .values("z.actions", {9, 8});
  };
  CHECK(read_plan(file().read(), 3, 1).base_run().name == "v2");
  CHECK(read_plan(file().values("cfg2.0.vc0", {1, 2}).read(), 3, 1).base_run().name == "a");
  CHECK(read_plan(file().values("cfg1.0.actions", {9, 8}).read(), 3, 1).base_run().name == "z");
  CHECK(read_plan(file().values("rtc.zeros.actions", {9, 8}).read(), 3, 1).base_run().name == "z");
}

TEST_CASE("a file that contradicts itself or the model is refused with the tensor's name") {
  const auto refuse = [](const GoldenFile& file, const char* text) {
    CHECK_THROWS_WITH_AS(read_plan(file.read(), 3, 10), doctest::Contains(text), frt::Error);
  };
  refuse(inputs(), "no run with views");
  refuse(inputs().ids("a.mask", {0, 0, 0}), "run a sees no view");
  refuse(inputs().ids("a.mask", {0, 2, 0}), "a.mask holds 2");
  refuse(inputs().ids("a.mask", {1, 0, 0, 1}), "sees view 3, the model has 3");
  refuse(inputs().values("v9.actions", {1}), "run v9 sees view 3");
  refuse(inputs().values("v000.actions", {1}), "run v000 sees no view");
  const auto good = [] { return inputs().ids("a.mask", {1, 1, 0}); };
  refuse(good().values("cfgx.actions", {1}), "cfgx");
  refuse(good().values("cfgnan.actions", {1}), "cfgnan");
  refuse(good().values("cfg-1.actions", {1}), "cfg-1");
  refuse(good().values("cfg1e30.actions", {1}), "cfg1e30");
  refuse(good().values("steps0.actions", {1}), "steps0");
  refuse(good().values("steps99999.actions", {1}), "steps99999");
  refuse(good().values("h0.noise", {1}), "h0");
  refuse(good().values("h70000.noise", {1}), "h70000");
  refuse(good().values("time.cond", {1, 2}), "time.cond says 0 steps");
  refuse(good().values("time.cond", {1, 2, 3, 4}).values("a.v0", {1}).values("a.v1", {1}),
         "time.cond says 1 steps, the runs hold 2");
}

TEST_CASE("the rows that a run locks are those it shares with the previous chunk") {
  const std::vector<float> previous = {1, 2, 3, 4, 5, 6};
  CHECK(locked_rows({1, 2, 3, 4, 0, 0}, previous, 2) == 2);
  CHECK(locked_rows({1, 2, 3, 5, 5, 6}, previous, 2) == 1);
  CHECK(locked_rows({0, 2}, previous, 2) == 0);
  CHECK(locked_rows(previous, previous, 2) == 3);
  CHECK(locked_rows({}, previous, 2) == 0);
}

TEST_CASE("no gate of a policy passes zeros, values that are no numbers, or nothing") {
  for (const Gates gates : {Gates::kExact, Gates::kBf16, Gates::kFp8}) {
    for (const Quantity quantity : {Quantity::kActions, Quantity::kFlow, Quantity::kStage}) {
      Verdicts verdicts;
      Checks checks = verdicts.checks(gates);
      checks.values("v2.x3", quantity, std::vector<float>(kGolden.size()), kGolden);
      CHECK(verdicts.last() == FRT_VERDICT_FAIL);
      std::vector<float> nan = kGolden;
      nan[5] = kNan;
      checks.values("v2.x3", quantity, nan, kGolden);
      CHECK(verdicts.last() == FRT_VERDICT_FAIL);
      checks.values("v2.x3", quantity, kGolden, nan);
      CHECK(verdicts.last() == FRT_VERDICT_FAIL);
      checks.values("v2.x3", quantity, {}, {});
      CHECK(verdicts.last() == FRT_VERDICT_FAIL);
      checks.values("v2.x3", quantity, kGolden, kGolden);
      CHECK(verdicts.last() != FRT_VERDICT_FAIL);
    }
    // Zeros, although every golden value is within the absolute limit of them.
    Verdicts verdicts;
    Checks checks = verdicts.checks(gates);
    const std::vector<float> small = {1e-6f, -2e-6f};
    checks.values("v2.actions", Quantity::kActions, std::vector<float>(2), small);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    const std::vector<float> nans = {kNan, kNan};
    checks.bits("bits", nans, nans);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    const std::vector<double> number = {1}, not_one = {std::nan("")}, limit = {10};
    checks.within("within", "10", not_one, number, limit);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.within("within", "10", {}, {}, limit);
    CHECK(verdicts.last() == FRT_VERDICT_FAIL);
    checks.within("within", "10", number, number, limit);
    CHECK(verdicts.last() == FRT_VERDICT_PASS);
  }
}

TEST_CASE("the limit of FP8 follows the strength of guidance, whatever it is") {
  Verdicts verdicts;
  Checks checks = verdicts.checks(Gates::kFp8);
  const auto gate = [&](const char* name, Quantity quantity, float beta) {
    checks.values(name, quantity, kGolden, kGolden, beta);
    return verdicts.gates.back();
  };
  CHECK(gate("v2.actions", Quantity::kActions, 1) == "cosine >= 0.99");
  CHECK(gate("cfg1.5.actions", Quantity::kActions, 1.5f) == "cosine >= 0.99");
  CHECK(gate("cfg1.7.x3", Quantity::kFlow, 1.7f) == "cosine >= 0.98");
  CHECK(gate("cfg2.5.actions", Quantity::kActions, 2.5f) == "cosine >= 0.97");
  CHECK(gate("cfg4.actions", Quantity::kActions, 4) == "cosine >= 0.9118");
  for (const float strong : {5.0f, 8.0f, 17.5f, 100.0f}) {
    CHECK(gate("strong.actions", Quantity::kActions, strong) == "cosine >= 0.9");
  }
  std::vector<float> opposite = kGolden;
  for (float& value : opposite) value = -value;
  checks.values("cfg100.actions", Quantity::kActions, opposite, kGolden, 100);
  CHECK(verdicts.last() == FRT_VERDICT_FAIL);
}
