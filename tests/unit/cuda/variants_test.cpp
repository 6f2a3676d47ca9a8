// SPDX-License-Identifier: Apache-2.0
// Features of a device, and which kernel variant is selected by them. Runs without a device.
#include "ops/variants.hpp"

#include <doctest/doctest.h>

#include <frt/error.hpp>
#include <string>

#include "test_kernels.hpp"

namespace {

using namespace frt::cuda;

constexpr int kLargeShared = 232448, kSmallShared = 101376;

// What operators see of a device.
class FakeDevice final : public Device {
 public:
  FakeDevice(FeatureSet features, int shared_bytes) : Device(0, {}) {
    features_ = features;
    properties_.shared_bytes_block = shared_bytes;
  }
};

struct Call {
  int rows;
};
constexpr Variant<Call> kVariants[] = {
    {"wgmma",
     {feature::kWgmma | feature::kBulkCopies, 200000},
     [](Device&, Call& call) { return call.rows > 64; },
     nullptr},
    {"clusters", {feature::kClusters}, [](Device&, Call& call) { return call.rows > 16; }, nullptr},
    {"large", {0, 200000}, nullptr, nullptr},
    {"general", {}, nullptr, nullptr},
};
constexpr Variants<Call> kTable{"test", kVariants};

std::string selected(FeatureSet features, int shared_bytes, int rows) {
  FakeDevice device(features, shared_bytes);
  Call call{rows};
  return select_variant(device, kTable, call).name;
}

}  // namespace

TEST_CASE("the first variant that a device offers and that supports the call is selected") {
  const FeatureSet hopper =
      feature::kPdl | feature::kClusters | feature::kBulkCopies | feature::kWgmma;
  CHECK(selected(hopper, kLargeShared, 100) == "wgmma");
  CHECK(selected(hopper, kSmallShared, 100) == "clusters");
  CHECK(selected(hopper & ~feature::kBulkCopies, kLargeShared, 100) == "clusters");
  CHECK(selected(hopper, kLargeShared, 20) == "clusters");
  CHECK(selected(hopper, kLargeShared, 1) == "large");
  CHECK(selected(0, kLargeShared, 100) == "large");
  CHECK(selected(0, kSmallShared, 100) == "general");
}

TEST_CASE("a call that no variant supports is an error, not a crash") {
  constexpr Variant<Call> some[] = {{"clusters", {feature::kClusters}, nullptr, nullptr}};
  const Variants<Call> table{"test", some};
  FakeDevice device(0, kSmallShared);
  Call call{1};
  CHECK_THROWS_WITH_AS(select_variant(device, table, call),
                       "test: no kernel variant supports these arguments here", frt::Error);
}

TEST_CASE("experts may round what they multiply, the router that chooses them may not") {
  CHECK(frt::cuda_test::may_round_experts(false));
  CHECK_FALSE(frt::cuda_test::may_round_experts(true));
}

TEST_CASE("features come from the code and the device together") {
  const auto has = [](FeatureSet all, FeatureSet some) { return (all & some) == some; };
  const FeatureSet base = feature::kPdl | feature::kClusters | feature::kBulkCopies;
  const FeatureSet exact = feature::kWgmma | feature::kTcgen05 | feature::kFp4Mma;
  const FeatureSet h200 = features_of({.code = 90, .code_exact = true, .capability = 90});
  CHECK(has(h200, base | feature::kWgmma));
  CHECK((h200 & (feature::kTcgen05 | feature::kFp4Mma)) == 0);
  // PTX of 89 on an H200, and of 90 on newer devices.
  CHECK((features_of({.code = 89, .code_exact = false, .capability = 90}) & (base | exact)) == 0);
  const FeatureSet newer = features_of({.code = 90, .code_exact = true, .capability = 120});
  CHECK(has(newer, base));
  CHECK((newer & exact) == 0);
  CHECK((features_of({.code = 90, .code_exact = false, .capability = 90}) & exact) == 0);
  CHECK(has(features_of({.code = 110, .code_exact = true, .capability = 110}),
            base | feature::kTcgen05));
  CHECK((features_of({.code = 110, .code_exact = true, .capability = 110}) & feature::kFp4Mma) ==
        0);
  const FeatureSet consumer = features_of({.code = 120, .code_exact = true, .capability = 120});
  CHECK(has(consumer, base | feature::kFp4Mma));
  CHECK((consumer & (feature::kWgmma | feature::kTcgen05)) == 0);
  CHECK(has(features_of({.code = 121, .code_exact = true, .capability = 121}), feature::kFp4Mma));
  // An architecture that the device code does not know has none of its instructions.
  CHECK((features_of({.code = 130, .code_exact = true, .capability = 130}) & exact) == 0);
  CHECK((h200 & (feature::kCoResident | feature::kFp8Activations | feature::kFp4Activations)) == 0);
  CHECK(has(features_of({.code = 89,
                         .code_exact = false,
                         .capability = 89,
                         .cooperative = true,
                         .activations = ActivationRounding::kFp8}),
            feature::kCoResident | feature::kFp8Activations));
  CHECK((features_of({.code = 120, .activations = ActivationRounding::kFp4}) &
         (feature::kFp8Activations | feature::kFp4Activations)) == feature::kFp4Activations);
}

TEST_CASE("every feature has a name, and needs are told in words") {
  FeatureSet named = 0;
  for (const char* name : {"pdl", "clusters", "bulk-copies", "wgmma", "tcgen05", "fp4-mma",
                           "co-resident", "cublaslt", "fp8-activations", "fp4-activations"}) {
    CHECK(needs_text({feature_named(name)}) == name);
    named |= feature_named(name);
  }
  CHECK(named == feature::kAll);
  CHECK(feature_named("") == 0);
  CHECK(feature_named("sm_90") == 0);
  CHECK(needs_text({}).empty());
  CHECK(needs_text({feature::kClusters | feature::kWgmma, 196608}) ==
        "clusters, wgmma, 196608 bytes of shared memory");
}
