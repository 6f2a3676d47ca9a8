// SPDX-License-Identifier: Apache-2.0
// FRT_CUDA_DEVICE_LIMITS: what it lowers and what it refuses. Runs without a device.
#include "device_limits.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <frt/error.hpp>

namespace {

using namespace frt::cuda;

constexpr FeatureSet kFeatures = feature::kPdl | feature::kClusters | feature::kWgmma;

struct Limited : DeviceProperties {
  FeatureSet features = kFeatures;
};

Limited limited(const char* text) {
  Limited properties;
  properties.multiprocessors = 132;
  properties.shared_bytes_block = 232448;
  REQUIRE(::setenv("FRT_CUDA_DEVICE_LIMITS", text, 1) == 0);
  CHECK(apply_device_limits(properties, properties.features) == (*text != '\0'));
  ::unsetenv("FRT_CUDA_DEVICE_LIMITS");
  return properties;
}

}  // namespace

TEST_CASE("limits lower what operators are told") {
  CHECK(limited("").shared_bytes_block == 232448);
  CHECK(limited("shared=101376").shared_bytes_block == 101376);
  CHECK(limited("shared=101376").multiprocessors == 132);
  CHECK(limited("shared=101376").features == kFeatures);
  const DeviceProperties both = limited("multiprocessors=48,shared=101376");
  CHECK(both.multiprocessors == 48);
  CHECK(both.shared_bytes_block == 101376);
}

TEST_CASE("limits take features away") {
  CHECK(limited("without=wgmma").features == (feature::kPdl | feature::kClusters));
  CHECK(limited("without=wgmma,without=clusters").features == feature::kPdl);
  CHECK(limited("without=tcgen05").features == kFeatures);
  CHECK(limited("without=wgmma,shared=101376").shared_bytes_block == 101376);
}

TEST_CASE("an instruction that is emulated can be added") {
  CHECK(limited("emulate=fp4-mma").features == (kFeatures | feature::kFp4Mma));
  CHECK(limited("emulate=fp4-mma,without=fp4-mma").features == kFeatures);
  CHECK(limited("emulate=fp4-mma,shared=101376").shared_bytes_block == 101376);
}

TEST_CASE("a limit that is none, or more than the device has, is refused") {
  for (const char* text :
       {"shared", "shared=", "shared=0", "shared=-1", "shared=232449", "shared=1e5",
        "shared=99999999999999999999", "memory=1", ",", "shared=101376,",
        "shared=101376;multiprocessors=48", "without", "without=", "without=sm_90",
        "without=wgmma clusters", "emulate", "emulate=", "emulate=wgmma", "emulate=fp4"}) {
    CAPTURE(text);
    DeviceProperties properties;
    properties.multiprocessors = 132;
    properties.shared_bytes_block = 232448;
    REQUIRE(::setenv("FRT_CUDA_DEVICE_LIMITS", text, 1) == 0);
    FeatureSet features = kFeatures;
    CHECK_THROWS_AS(apply_device_limits(properties, features), frt::Error);
    ::unsetenv("FRT_CUDA_DEVICE_LIMITS");
  }
}
