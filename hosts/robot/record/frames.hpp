// SPDX-License-Identifier: Apache-2.0
// frames.hpp - observations from files, to show them to a model once more: a calibration's input.
//
//   a recorded episode (episode.hpp)   every chunk: what was seen, the noise, the instruction
//   any other .npz archive             arrays under the names that the model reads (numpy.savez),
//                                      with one more extent in front if there are several frames;
//                                      "prompt" (text as u8) and "noise" (horizon, action_dim)
//                                      where they are known
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "robot/policy_model.hpp"
#include "robot/record/episode.hpp"

namespace frt::host {

class FrameFile {
 public:
  // `names`: what the model reads. Throws as EpisodeRecord::read and read_npz, and FRT_ERR_MISMATCH
  // for arrays that do not belong together.
  FrameFile(const std::filesystem::path& path, const std::vector<ObservedName>& names);
  FrameFile(const FrameFile&) = delete;
  FrameFile& operator=(const FrameFile&) = delete;

  std::size_t count() const noexcept { return count_; }
  const std::string& prompt() const noexcept { return prompt_; }  // empty: the model's default
  // Valid as long as this object.
  std::vector<frt_array> observation(std::size_t frame) const;
  std::span<const float> noise(std::size_t frame) const;  // empty: none known

 private:
  void read_arrays(const std::filesystem::path& path, const std::vector<ObservedName>& names);

  struct Series {  // one array of all frames
    std::string name;
    NpyArray array;
    bool several;  // the first extent counts frames
  };
  std::size_t count_ = 0;
  std::string prompt_;
  bool episode_ = false;
  EpisodeRecord record_;
  std::vector<Series> series_;
};

}  // namespace frt::host
