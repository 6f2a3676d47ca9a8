// SPDX-License-Identifier: Apache-2.0
// How well a card fits a device, from names alone.
//
// An architecture name is read as prefix + number + feature letters: "sm_90a" is "sm_", 90, "a".
// The last digit of the number is the minor version, the rest the major one. Machine code runs on
// its own architecture and, without a feature letter, on later minors of the same major. Virtual
// code (`ptx`) is translated for any later architecture, unless it has a feature letter. Its
// prefix differs from the device's, so only numbers are compared there.
#include <frt/core/plugin.hpp>

#include <cctype>

namespace frt::core {

namespace {

struct Architecture {
  std::string_view prefix;
  uint32_t number = 0;
  std::string_view feature;
  bool numbered = false;
};

Architecture parse(std::string_view name) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t end = name.size();
  while (end > 0 && !digit(name[end - 1])) --end;
  std::size_t start = end;
  while (start > 0 && digit(name[start - 1])) --start;
  Architecture result;
  if (end == start || end - start > 6) {
    result.prefix = name;
    return result;
  }
  result.prefix = name.substr(0, start);
  result.feature = name.substr(end);
  for (const char c : name.substr(start, end - start)) {
    result.number = result.number * 10 + static_cast<uint32_t>(c - '0');
  }
  result.numbered = true;
  return result;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Ranking rank_card(const Card& card, std::string_view architecture) {
  const std::string device(architecture);
  if (card.targets.empty() && card.ptx.empty()) return {Fit::kAny, "runs on any device", 0};
  const Architecture have = parse(architecture);
  Ranking best{
      Fit::kNone,
      "for " + join(card.targets.empty() ? card.ptx : card.targets) + ", the device is " + device,
      0};
  const auto offer = [&](Fit fit, const Architecture& code, const std::string& reason) {
    const Ranking offered{fit, reason, code.number};
    if (offered.better_than(best)) best = offered;
  };
  for (const std::string& target : card.targets) {
    const Architecture want = parse(target);
    const bool same_number =
        want.numbered && have.numbered && want.prefix == have.prefix && want.number == have.number;
    if (target == architecture || same_number) {
      offer(Fit::kExact, want, "machine code for " + target);
    } else if (want.numbered && have.numbered && want.prefix == have.prefix &&
               want.feature.empty() && want.number / 10 == have.number / 10 &&
               want.number < have.number) {
      offer(Fit::kFamily, want, "machine code for " + target + ", of the same family as " + device);
    }
  }
  for (const std::string& virtual_target : card.ptx) {
    const Architecture want = parse(virtual_target);
    if (!want.numbered || !have.numbered) continue;
    if (want.number == have.number || (want.feature.empty() && want.number < have.number)) {
      offer(Fit::kVirtual, want,
            "virtual code for " + virtual_target + " that the driver translates for " + device);
    }
  }
  return best;
}

}  // namespace frt::core
