// SPDX-License-Identifier: Apache-2.0
#include "runtime/episode_replay.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <filesystem>
#include <frt/io/file.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/retry.hpp>
#include <frt/io/utf8.hpp>

#include "robot/policy_runner.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::host {
namespace {

template <class T>
std::ptrdiff_t first_difference(std::span<const T> a, std::span<const T> b) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<Bits>(a[i]) != std::bit_cast<Bits>(b[i])) {
      return static_cast<std::ptrdiff_t>(i);
    }
  }
  return -1;
}

// Every field of the record that is another now, or gone. Fields that only the present model has
// are no difference: the record's version did not know them.
std::vector<std::string> differing_fields(const nlohmann::ordered_json& recorded,
                                          const nlohmann::ordered_json& now) {
  std::vector<std::string> differences;
  for (const auto& [name, value] : recorded.items()) {
    const auto found = now.find(name);
    if (found != now.end() && *found == value) continue;
    differences.push_back(
        fmt::format("{}: recorded {}, now {}", io::printable(name), io::json_text(value),
                    found == now.end() ? std::string("absent") : io::json_text(*found)));
  }
  return differences;
}

}  // namespace

LoadOptions load_options_of_record(const std::string& manifest) {
  LoadOptions options;
  if (manifest.empty()) {
    options.no_plugin_paths =
        "only the record chose this manifest, and a plugin is native code; give --manifest FILE if "
        "you trust it";
  }
  return options;
}

bool is_episode_file(const std::string& path) {
  std::array<char, 4> head{};
  const io::Descriptor file = io::open_file(path, "record");
  const auto read = [&] { return ::pread(file.get(), head.data(), head.size(), 0); };
  return io::retried(read) == ssize_t{head.size()} && head == std::array<char, 4>{'P', 'K', 3, 4};
}

EpisodeRecord read_episode(const std::string& path) {
  EpisodeRecord record = EpisodeRecord::read(path);
  if (record.chunks() == 0) {
    throw Error(FRT_ERR_FORMAT,
                io::quote(path) +
                    " holds no chunk of actions, so nothing was compared; record an "
                    "episode in which the policy acts");
  }
  return record;
}

std::string recorded_manifest(const std::string& path, const EpisodeRecord& record) {
  const std::filesystem::path named(record.meta().manifest);
  const std::filesystem::path beside =
      (std::filesystem::weakly_canonical(path).parent_path() / named).lexically_normal();
  std::error_code ignored;
  for (const std::filesystem::path& place : {beside, named}) {
    if (std::filesystem::is_regular_file(place, ignored)) return place.string();
  }
  const std::string here = std::filesystem::absolute(named).lexically_normal().string();
  throw Error(FRT_ERR_NOT_FOUND, "the manifest that " + io::quote(path) +
                                     " was recorded with is not there: looked for " +
                                     io::quote(beside.string()) +
                                     (here == beside ? "" : " and " + io::quote(here)) +
                                     "; say where it is with --manifest FILE");
}

EpisodeReplay replay_episode(const LoadedModel& loaded, const EpisodeRecord& record,
                             const std::string& path, bool anyway) {
  const EpisodeMeta& meta = record.meta();
  const PolicyModel policy = policy_of(loaded);
  if (policy.info().horizon != meta.horizon || policy.info().action_dim != meta.network_dim ||
      policy.observation_info().action_dim != meta.action_dim) {
    throw Error(FRT_ERR_MISMATCH, path + " was recorded with chunks of " +
                                      std::to_string(meta.horizon) + " x " +
                                      std::to_string(meta.network_dim) + ", model '" +
                                      policy.name() + "' has others");
  }
  EpisodeReplay replay;
  replay.changes = differing_fields(meta.fingerprints, robot_fingerprints(loaded, policy.name()));
  if (!replay.changes.empty() && !anyway) {
    throw Error(FRT_ERR_MISMATCH,
                fmt::format("the episode was recorded with something else: {}; use that again, or "
                            "give --anyway to see what differs",
                            fmt::join(replay.changes, "; ")));
  }
  PolicyRunner runner(policy);
  runner.set_steps(meta.steps);
  runner.set_guidance(meta.guidance);
  for (std::size_t i = 0; i < record.chunks() && replay.difference.empty(); ++i) {
    const std::vector<frt_array> arrays = record.observation(i);
    frt_observation observation{};
    observation.struct_size = sizeof(observation);
    observation.array_count = static_cast<uint32_t>(arrays.size());
    observation.arrays = arrays.data();
    observation.prompt = meta.prompt.c_str();
    runner.observe(observation);
    std::ranges::copy(record.noise(i), runner.noise().begin());
    runner.submit();
    const std::span<const double> actions = runner.wait();
    const std::ptrdiff_t network =
        first_difference(runner.network_actions(), record.network_actions(i));
    const std::ptrdiff_t robot = first_difference(actions, record.actions(i));
    if (network < 0 && robot < 0) {
      ++replay.equal_chunks;
    } else if (network >= 0) {
      const auto at = static_cast<std::size_t>(network);
      replay.difference =
          fmt::format("chunk {}, network action {}: recorded {:.9g}, now {:.9g}", i, at,
                      record.network_actions(i)[at], runner.network_actions()[at]);
    } else {
      const auto at = static_cast<std::size_t>(robot);
      replay.difference = fmt::format("chunk {}, action {}: recorded {:.17g}, now {:.17g}", i, at,
                                      record.actions(i)[at], actions[at]);
    }
  }
  return replay;
}

}  // namespace frt::host
