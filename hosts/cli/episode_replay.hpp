// SPDX-License-Identifier: Apache-2.0
// episode_replay.hpp - the part of `frt-host replay` for recorded episodes.
#pragma once

#include <string>

#include "cli/app.hpp"

namespace frt::host {

// The file is a recorded episode (an .npz archive), as far as its first bytes say.  [any]
bool is_episode_file(const std::string& path);

// Feeds every observation and noise of the record to the manifest's model again and compares the
// chunks, bit for bit; where the first difference is goes to stdout. kOk: there is none. `manifest`
// empty: the one that it was recorded with, found from the record's folder.
ExitCode replay_episode(App& app, const std::string& record, const std::string& manifest,
                        bool json);

}  // namespace frt::host
