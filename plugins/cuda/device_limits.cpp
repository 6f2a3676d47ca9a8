// SPDX-License-Identifier: Apache-2.0
#include "device_limits.hpp"

#include <charconv>
#include <cstdlib>
#include <frt/error.hpp>
#include <string>
#include <string_view>

namespace frt::cuda {
namespace {

[[noreturn]] void refuse(std::string_view item, const std::string& why) {
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              std::string(kDeviceLimits) + ": `" + std::string(item) + "` " + why +
                  "; for example shared=101376,multiprocessors=48,without=wgmma");
}

void lower(int& property, std::string_view item, std::string_view digits) {
  int value = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (problem != std::errc{} || end != digits.data() + digits.size() || value < 1 ||
      value > property) {
    refuse(item, "needs a number from 1 to the device's " + std::to_string(property));
  }
  property = value;
}

}  // namespace

bool apply_device_limits(DeviceProperties& properties, FeatureSet& features) {
  const char* const text = std::getenv(kDeviceLimits);
  if (!text || !*text) return false;
  std::string_view rest = text;
  for (bool last = false; !last;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    last = comma == std::string_view::npos;
    rest.remove_prefix(last ? rest.size() : comma + 1);
    const std::size_t sign = item.find('=');
    const std::string_view name = item.substr(0, sign);
    const std::string_view digits =
        sign == std::string_view::npos ? std::string_view() : item.substr(sign + 1);
    if (name == "shared") {
      lower(properties.shared_bytes_block, item, digits);
    } else if (name == "multiprocessors") {
      lower(properties.multiprocessors, item, digits);
    } else if (name == "without") {
      const FeatureSet feature = feature_named(std::string(digits));
      if (feature == 0) refuse(item, "names no feature");
      features &= ~feature;
    } else if (name == "emulate") {
      if (feature_named(std::string(digits)) != feature::kFp4Mma) {
        refuse(item, "names no feature that is emulated; fp4-mma is");
      }
      features |= feature::kFp4Mma;
    } else {
      refuse(item, "is no limit");
    }
  }
  return true;
}

}  // namespace frt::cuda
