// SPDX-License-Identifier: Apache-2.0
// The automatic choice of a backend.
//
// A card says what a plugin is for, but only a plugin can say which devices there are. So every
// backend is asked for the wanted device, and its card is ranked against the architecture that it
// reports itself; the best is taken: the newest code among those that fit alike, the earlier plugin
// among equals. No answer counts for another plugin, however alike their targets are: one plugin
// without a driver, or one that misjudges the device, must not hide one that works. A device that
// is the processor itself is never taken: work meant for a device that quietly runs a hundred times
// slower helps nobody.
//
// All files are mapped before the first backend is asked: a driver may start threads when it is,
// and neither loading a library nor a trial in a child process goes well beside those.
#include <frt/backend.h>
#include <frt/core/context.hpp>
#include <frt/core/runtime.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace frt::core {

namespace {

struct Seen {
  std::optional<std::string> architecture;  // of the wanted device, if the plugin sees it
  std::string reason;                       // why it does not count
};

Seen ask(const OpenPlugin& plugin, uint32_t ordinal) {
  const auto* backend = plugin.find<frt_backend_v1>(FRT_EXT_BACKEND);
  if (!backend) return {std::nullopt, "offers no " FRT_EXT_BACKEND};
  uint32_t count = 0;
  frt_error why{};
  SetupWatch watching = plugin.watch("device_count");
  const frt_status status = count_devices(*backend, plugin.handle(), plugin.sender(), count, why);
  if (status != FRT_OK || count == 0) {
    return {std::nullopt, why.message[0] ? why.message : "sees no device"};
  }
  const uint32_t asked = std::min(ordinal, count - 1);
  watching.enter("device_info");
  const frt_device_info info = describe_device(*backend, plugin.handle(), asked, plugin.sender());
  if (info.flags & FRT_DEVICE_PROCESSOR) {
    return {std::nullopt, "is the CPU itself, which is used only when it is asked for"};
  }
  if (ordinal >= count) {
    return {std::nullopt,
            fmt::format("sees {} device{}, no ordinal {}", count, count == 1 ? "" : "s", ordinal)};
  }
  return {std::string(info.architecture), {}};
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
  std::vector<std::string> loaded;
  for (const std::string& id : registry.ids(FRT_PLUGIN_BACKEND)) {
    try {
      registry.load(id);
      loaded.push_back(id);
    } catch (const Error& error) {
      rejected.push_back(id + ": " + error.what());
    }
  }
  for (const std::string& id : loaded) {
    Seen seen;
    try {
      seen = ask(open(id), ordinal);
    } catch (const Error& error) {
      seen.reason = error.what();
    }
    if (!seen.architecture) {
      rejected.push_back(id + ": " + seen.reason);
      continue;
    }
    const Ranking ranking = rank_card(*registry.find_usable(id)->card, *seen.architecture);
    if (ranking.fit == Fit::kNone) {
      rejected.push_back(id + ": " + ranking.reason);
    } else {
      fitting.push_back({id, *seen.architecture, ranking});
    }
  }
  std::stable_sort(fitting.begin(), fitting.end(), [](const Ranked& a, const Ranked& b) {
    return a.ranking.better_than(b.ranking);
  });
  if (!fitting.empty()) {
    BackendChoice choice;
    choice.id = fitting.front().id;
    choice.architecture = fitting.front().architecture;
    choice.reason = fitting.front().ranking.reason;
    for (std::size_t i = 1; i < fitting.size(); ++i) {
      choice.others.push_back(fitting[i].id + ": fits less well, " + fitting[i].ranking.reason);
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
  throw Error(FRT_ERR_DEVICE, text + "\nTo run on the CPU, say so: backend = \"frt.cpu\"");
}

}  // namespace frt::core
