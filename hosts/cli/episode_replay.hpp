// SPDX-License-Identifier: Apache-2.0
// episode_replay.hpp - the part of `frt-host replay` for recorded episodes.
#pragma once

#include <string>

#include "cli/app.hpp"
#include "cli/loaded_model.hpp"

namespace frt::host {

// How replay loads the model of a record. `manifest`: what the user gave. Empty: the record chooses
// the manifest, which then may not name plugins by their paths, for a record may come from anywhere
// and a plugin is native code. Those of the plugin folders are the user's choice.
LoadOptions load_options_of_record(const std::string& manifest);

// The file is a recorded episode (an .npz archive), as far as its first bytes say.  [any]
bool is_episode_file(const std::string& path);

// Feeds every observation and noise of the record to the manifest's model again and compares the
// chunks, bit for bit; where the first difference is goes to stdout. kOk: there is none. `manifest`
// empty: the one that it was recorded with, found from the record's folder. Throws
// FRT_ERR_MISMATCH, saying which fields differ, if model, plugin or backend are others now; with
// `anyway` it says so and goes on.
ExitCode replay_episode(App& app, const std::string& record, const std::string& manifest,
                        bool anyway, bool json);

}  // namespace frt::host
