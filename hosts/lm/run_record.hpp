// SPDX-License-Identifier: Apache-2.0
// run_record.hpp - a run, written down so that it can be repeated to the bit, and the repetition.
//
//   {"format": "frt.lm.run/1", "manifest", "model", "fingerprint": [[name, value]...],
//    "capsule": {"name", "digest", "boundary"} or null, "chunk", "prompt", "steps", "sampling",
//    "tokens", "log_probabilities"}
//
// `prompt` are the ids read after the capsule's; `steps` all that were made since the state was
// new, the capsule's own included (lm/token_journal.hpp); log probabilities are the bits of the
// f32 as 8 hexadecimal digits.
#pragma once

#include <frt/ops/sample.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lm/session.hpp"

namespace frt::host {

struct RunRecord {
  struct Start {
    std::string name;
    TokenDigest digest;
    uint64_t boundary = 0;
  };

  std::string manifest;  // where it was
  std::string model;
  std::vector<std::pair<std::string, std::string>> fingerprint;
  std::optional<Start> capsule;
  uint64_t chunk = 0;
  std::vector<int32_t> prompt;
  FeedPath path;
  frt_sampling_params sampling{};
  bool pending_shown = false;  // the capsule's pending token was no part of this run's text
  std::vector<int32_t> tokens;
  std::vector<float> log_probabilities;

  uint64_t start() const noexcept { return capsule ? capsule->boundary : 0; }  // tokens
};

// FRT_ERR_IO.
void write_record(const RunRecord& record, const std::filesystem::path& path);
// Checks the record whole: types, ranges, and that the steps are those of its prompt and its text.
// FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT naming the member.
RunRecord read_record(const std::filesystem::path& path);

// The first field of the fingerprint that differs: "config: recorded 3f2a, now 91bc"; empty: none.
std::string fingerprint_difference(const RunRecord& record,
                                   std::span<const frt_fingerprint_field> now);

struct ReplayResult {
  uint64_t compared = 0;  // tokens that are the same to the bit
  bool same = true;
  // Of the first difference.
  int32_t recorded_token = -1, token = -1;
  float recorded_log_probability = 0, log_probability = 0;
};

// Makes the recorded steps again in the session's slot and compares what comes out. `session` holds
// the record's capsule, or nothing; `runner` is the session's. Throws FRT_ERR_FORMAT if there is
// nothing to compare or an id that the model does not have, FRT_ERR_MISMATCH if the model or the
// capsule cannot be cut alike, with the way out.  [driver]
ReplayResult replay(const RunRecord& record, Session& session, StepRunner& runner);

}  // namespace frt::host
