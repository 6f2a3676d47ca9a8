// SPDX-License-Identifier: Apache-2.0
// episode_folder.hpp - the records of episodes in a folder: episode_000000.npz and
// episode_000000.mcap, and so on. Numbers go on after those that are there, also when several
// programs write at once: no record ever takes the place of another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "robot/record/episode.hpp"

namespace frt::host {

class EpisodeFolder {
 public:
  // Makes the folder if it is not there. Throws FRT_ERR_IO.
  explicit EpisodeFolder(std::filesystem::path folder);

  // The number that the next record gets, unless somebody else takes it before.
  uint64_t next() const noexcept { return next_; }
  // Writes both files; the number they got. Throws FRT_ERR_IO, and leaves no file behind then.
  uint64_t write(const EpisodeRecord& record);

  // `file` as seen from the folder, for EpisodeMeta::manifest: the two may move together.
  std::string path_to(const std::filesystem::path& file) const;

 private:
  std::filesystem::path stem(uint64_t number) const;
  bool claim(uint64_t number) const;

  std::filesystem::path folder_;
  uint64_t next_ = 0;
};

}  // namespace frt::host
