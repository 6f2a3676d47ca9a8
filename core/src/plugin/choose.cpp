// SPDX-License-Identifier: Apache-2.0
// The automatic choice of a backend.
//
// A card says what a plugin is for, but only a plugin can say which devices there are. So backends
// are asked one after the other, in search order, until one sees the wanted device; then all cards
// are ranked against that device's architecture, and the best is taken: the newest code among those
// that fit alike, the earlier plugin among equals. Plugins of one make (same prefix of their
// targets) see the same devices, so one of them is asked for all. A device that is the processor
// itself is never taken: work meant for a device that quietly runs a hundred times slower helps
// nobody.
#include <frt/backend.h>
#include <frt/core/runtime.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace frt::core {

namespace {

constexpr uint32_t kProcessor = 1;  // DLDeviceType of host memory

struct Seen {
  std::optional<std::string> architecture;  // of the wanted device, if the plugin sees it
  std::string reason;                       // why it does not count
};

Seen ask(const OpenPlugin& plugin, uint32_t ordinal) {
  const auto* backend = plugin.find<frt_backend_v1>(FRT_EXT_BACKEND);
  if (!backend) return {std::nullopt, "offers no " FRT_EXT_BACKEND};
  uint32_t count = 0;
  frt_error why{};
  if (const frt_status status = backend->device_count(plugin.handle(), &count, &why);
      status != FRT_OK || count == 0) {
    return {std::nullopt, why.message[0] ? why.message : "sees no device"};
  }
  frt_device_info info{};
  info.struct_size = sizeof(info);
  frt_error error{};
  const uint32_t asked = std::min(ordinal, count - 1);
  if (backend->device_info(plugin.handle(), asked, &info, &error) != FRT_OK) {
    return {std::nullopt, error.message[0] ? error.message : "cannot describe its device"};
  }
  if (info.dlpack_type == kProcessor) {
    return {std::nullopt, "is the processor itself, which is used only when it is asked for"};
  }
  if (ordinal >= count) {
    return {std::nullopt,
            fmt::format("sees {} device{}, no ordinal {}", count, count == 1 ? "" : "s", ordinal)};
  }
  return {std::string(info.architecture), {}};
}

// "sm_" of "sm_90a": what plugins of one make have in common; empty if the card names no target.
std::string make_of(const Card& card) {
  if (card.targets.empty()) return {};
  const std::string& target = card.targets.front();
  return target.substr(0, std::min(target.find_first_of("0123456789"), target.size()));
}

struct Ranked {
  std::string id;
  std::string architecture;
  Ranking ranking;
};

}  // namespace

BackendChoice choose_backend(Registry& registry, uint32_t ordinal,
                             const std::function<OpenPlugin&(const std::string& id)>& open) {
  std::vector<Ranked> fitting;
  std::vector<std::string> rejected;
  std::vector<std::pair<std::string, Seen>> asked;  // by make
  for (const std::string& id : registry.ids(FRT_PLUGIN_BACKEND)) {
    const Card card = *registry.find_usable(id)->card;
    const std::string make = make_of(card);
    Seen seen;
    const auto known = std::find_if(asked.begin(), asked.end(), [&](const auto& entry) {
      return !make.empty() && entry.first == make;
    });
    if (known != asked.end()) {
      seen = known->second;
    } else {
      try {
        seen = ask(open(id), ordinal);
        asked.emplace_back(make, seen);
      } catch (const Error& error) {
        seen.reason = error.what();
      }
    }
    if (!seen.architecture) {
      rejected.push_back(id + ": " + seen.reason);
      continue;
    }
    const Ranking ranking = rank_card(card, *seen.architecture);
    if (ranking.fit == Fit::kNone) {
      rejected.push_back(id + ": " + ranking.reason);
    } else {
      fitting.push_back({id, *seen.architecture, ranking});
    }
  }
  std::stable_sort(fitting.begin(), fitting.end(), [](const Ranked& a, const Ranked& b) {
    return a.ranking.better_than(b.ranking);
  });
  // Ranking goes by cards; whether the plugin opens is seen now. The next best may still do.
  for (std::size_t i = 0; i < fitting.size(); ++i) {
    try {
      open(fitting[i].id);
    } catch (const Error& error) {
      rejected.push_back(fitting[i].id + ": " + error.what());
      continue;
    }
    BackendChoice choice;
    choice.id = fitting[i].id;
    choice.architecture = fitting[i].architecture;
    choice.reason = fitting[i].ranking.reason;
    for (std::size_t j = i + 1; j < fitting.size(); ++j) {
      choice.others.push_back(fitting[j].id + ": fits less well, " + fitting[j].ranking.reason);
    }
    choice.others.insert(choice.others.end(), rejected.begin(), rejected.end());
    return choice;
  }
  std::string text = "backend = \"auto\" found no device";
  for (const std::string& line : rejected) text += "\n  " + line;
  for (const Candidate& candidate : registry.candidates()) {
    if (candidate.state == CandidateState::kRefused) {
      text += "\n  " + candidate.path.string() + ": " + candidate.reason;
    }
  }
  throw Error(FRT_ERR_DEVICE, text + "\nTo run on the processor, say so: backend = \"frt.cpu\"");
}

}  // namespace frt::core
