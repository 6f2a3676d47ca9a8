// SPDX-License-Identifier: Apache-2.0
// How well a card fits a device, from names alone. `targets` are compared as they are. `portable`
// names the least device: "sm_90" is every name that begins with "sm_" and ends in 90 or a larger
// number, "*" every device.
#include <frt/core/plugin.hpp>

#include <charconv>
#include <optional>

namespace frt::core {

namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kEvery = "*";

// "sm_90" is {"sm_", 90}.
struct Series {
  std::string_view prefix;
  uint32_t number = 0;
};

std::optional<Series> series_of(std::string_view name) {
  const std::size_t start = name.find_last_not_of(kDigits) + 1;  // 0: there are only digits
  Series series{name.substr(0, start), 0};
  const std::string_view digits = name.substr(start);
  const auto [end, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), series.number);
  if (start == 0 || digits.empty() || code != std::errc()) return std::nullopt;
  return series;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Ranking refusal(const Card& card, const std::string& device) {
  std::string has = join(card.targets);
  if (!card.portable.empty()) {
    has += (has.empty() ? "" : " and ") + std::string("devices from ") + join(card.portable);
  }
  return {Fit::kNone, "for " + has + ", the device is " + device, 0};
}

}  // namespace

bool is_portable_target(std::string_view name) {
  return name == kEvery || series_of(name).has_value();
}

Ranking rank_card(const Card& card, std::string_view architecture) {
  const std::string device(architecture);
  if (card.targets.empty() && card.portable.empty()) return {Fit::kAny, "runs on any device", 0};
  for (const std::string& target : card.targets) {
    if (target == architecture) return {Fit::kExact, "machine code for " + target, 0};
  }
  Ranking best = refusal(card, device);
  const auto offer = [&](const std::string& least, uint32_t number) {
    const Ranking offered{
        Fit::kPortable,
        "portable code for devices from " + least + ", which the driver translates for " + device,
        number};
    if (offered.better_than(best)) best = offered;
  };
  const std::optional<Series> have = series_of(architecture);
  for (const std::string& least : card.portable) {
    const std::optional<Series> from = series_of(least);
    if (least == kEvery) {
      offer(least, 0);
    } else if (from && have && from->prefix == have->prefix && from->number <= have->number) {
      offer(least, from->number);
    }
  }
  return best;
}

}  // namespace frt::core
