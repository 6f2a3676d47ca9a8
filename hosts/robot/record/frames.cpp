// SPDX-License-Identifier: Apache-2.0
#include "robot/record/frames.hpp"

#include <algorithm>
#include <frt/error.hpp>

namespace frt::host {
namespace {

constexpr std::size_t kImageRank = 3, kStateRank = 1, kNoiseRank = 2;

// Extents of one frame's array.
std::size_t rank_of(const std::string& name, const std::vector<ObservedName>& names) {
  if (name == "noise") return kNoiseRank;
  const auto known = std::find_if(names.begin(), names.end(),
                                  [&](const ObservedName& one) { return one.name == name; });
  if (known == names.end()) return 0;
  return known->image ? kImageRank : kStateRank;
}

}  // namespace

FrameFile::FrameFile(const std::filesystem::path& path, const std::vector<ObservedName>& names) {
  const NpzArrays arrays = read_npz(path);
  episode_ = arrays.contains("meta") && arrays.contains("network_actions");
  if (!episode_) {
    read_arrays(path, names);
    return;
  }
  record_ = EpisodeRecord::read(path);
  count_ = record_.chunks();
  prompt_ = record_.meta().prompt;
}

void FrameFile::read_arrays(const std::filesystem::path& path,
                            const std::vector<ObservedName>& names) {
  std::string known;
  for (const ObservedName& name : names) known += (known.empty() ? "" : ", ") + name.name;
  for (auto& [name, array] : read_npz(path)) {
    if (name == "prompt") {
      prompt_ = array.data;
      continue;
    }
    const std::size_t rank = rank_of(name, names);
    if (rank == 0) continue;  // models ignore names that they do not know
    const std::size_t extents = array.shape.size();
    if (extents != rank && extents != rank + 1) {
      throw Error(FRT_ERR_MISMATCH, path.string() + ": array " + name + " has " +
                                        std::to_string(extents) + " extents, expected " +
                                        std::to_string(rank) + " or, for several frames, " +
                                        std::to_string(rank + 1));
    }
    const bool several = extents == rank + 1;
    const std::size_t frames = several ? array.shape.front() : 1;
    if (!series_.empty() && frames != count_) {
      throw Error(FRT_ERR_MISMATCH, path.string() + ": array " + name + " has " +
                                        std::to_string(frames) + " frames, " +
                                        series_.front().name + " has " + std::to_string(count_));
    }
    count_ = frames;
    series_.push_back({name, std::move(array), several});
  }
  if (series_.empty()) {
    throw Error(
        FRT_ERR_FORMAT,
        path.string() + ": no recorded episode, and no array that the model reads (" + known + ")");
  }
}

std::vector<frt_array> FrameFile::observation(std::size_t frame) const {
  if (episode_) return record_.observation(frame);
  std::vector<frt_array> arrays;
  for (const Series& one : series_) {
    if (one.name == "noise") continue;
    const std::size_t bytes = one.array.data.size() / count_;
    frt_array array{};
    array.name = one.name.c_str();
    array.dtype = one.array.dtype;
    array.data = one.array.data.data() + frame * bytes;
    for (std::size_t i = one.several ? 1 : 0; i < one.array.shape.size(); ++i) {
      array.shape[array.rank++] = static_cast<int64_t>(one.array.shape[i]);
    }
    arrays.push_back(array);
  }
  return arrays;
}

std::span<const float> FrameFile::noise(std::size_t frame) const {
  if (episode_) return record_.noise(frame);
  for (const Series& one : series_) {
    if (one.name != "noise" || one.array.dtype != FRT_DTYPE_F32) continue;
    const std::span<const float> all = one.array.as<float>();
    return all.subspan(frame * (all.size() / count_), all.size() / count_);
  }
  return {};
}

}  // namespace frt::host
