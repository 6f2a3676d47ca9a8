// SPDX-License-Identifier: Apache-2.0
// episode_replay.hpp - makes a recorded episode again: the model sees every observation and noise
// of the record, and its chunks are compared bit for bit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "robot/record/episode.hpp"
#include "runtime/loaded_model.hpp"

namespace frt::host {

// How the model of a record is loaded. `manifest`: what the user gave. Empty: the record chooses
// the manifest, which then may not name plugins by their paths, for a record may come from anywhere
// and a plugin is native code. Those of the plugin folders are the user's choice.
LoadOptions load_options_of_record(const std::string& manifest);

// The file is a recorded episode (an .npz archive), as far as its first bytes say.  [any]
bool is_episode_file(const std::string& path);

// Reads the episode in `path`. Throws FRT_ERR_FORMAT if it holds no chunk, so nothing to compare.
EpisodeRecord read_episode(const std::string& path);

// Where the manifest of the record in `path` is: as seen from the record's folder, or, of older
// records, from here. Throws FRT_ERR_NOT_FOUND.
std::string recorded_manifest(const std::string& path, const EpisodeRecord& record);

struct EpisodeReplay {
  std::size_t equal_chunks = 0;      // before the first difference
  std::string difference;            // the first; empty: there is none
  std::vector<std::string> changes;  // fields of model, plugin and backend that are others now
};

// Replays `record`, read from `path`, with the loaded policy. Throws FRT_ERR_MISMATCH for a policy
// of other chunks and, unless `anyway`, for changes, which it names.  [driver]
EpisodeReplay replay_episode(const LoadedModel& loaded, const EpisodeRecord& record,
                             const std::string& path, bool anyway);

}  // namespace frt::host
