// SPDX-License-Identifier: Apache-2.0
// content.hpp - what a capsule of a language model means: its tokens, the steps they were
// fed in, and what came next. Core stores it as the capsule's metadata, covered by its digests.
//
//   {"format": "frt.lm.capsule/1", "name", "kind", "parent", "owner", "model", "created",
//    "chunk", "boundary", "digest", "tokens", "steps", "pending", "sampling", "extra"}
//
// `tokens` is the base64 of `boundary` i32, little endian; `digest` is that of token_digest.hpp;
// `steps` is a list of ["prefill" or "decode", begin, end] (token_journal.hpp).
#pragma once

#include <frt/capsule.h>
#include <frt/ops/sample.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lm/token_digest.hpp"
#include "lm/token_journal.hpp"

namespace frt::host {

// Why a capsule was taken.
enum class CapsuleKind {
  kNamed,     // somebody asked for it and gave it a name
  kChunk,     // in or at the end of a prompt, at a multiple of the chunk
  kUserTurn,  // where the user's turn ends and the answer, or its reasoning, begins
  kTurn,      // at the end of an answer
};
// "named", "chunk", "user-turn", "turn".
const char* capsule_kind_name(CapsuleKind kind) noexcept;

// The token that was sampled at the boundary, but not fed.
struct PendingToken {
  int32_t token = -1;  // -1: nobody looked
  float log_probability = 0;
  bool shown = false;  // it is part of a text that was already given out
};

struct CapsuleContent {
  std::string name;  // when it was taken (name.hpp); an imported file may have another
  CapsuleKind kind = CapsuleKind::kNamed;
  std::string parent;    // the capsule of the same sequence before this one; may be empty
  std::string owner;     // only the same owner's prompts find it
  std::string model;     // the user's name of the model, for people
  uint64_t created = 0;  // seconds since 1970
  uint64_t chunk = 0;    // the model's prefill_chunk
  std::vector<int32_t> tokens;
  FeedPath path;
  TokenDigest digest;  // of owner and tokens
  // Short digest of the fingerprint that its state has (fingerprint_digest()); empty: not known.
  // Of a file the manifest says it, so the metadata do not; with kMixedBuilds behind it where the
  // path says that another build computed a part.
  std::string fingerprint;
  PendingToken pending;
  frt_sampling_params sampling{};  // under which the pending token was drawn
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // the host's own: an object

  uint64_t boundary() const noexcept { return tokens.size(); }
};

// Throws FRT_ERR_OUT_OF_RANGE for more than it may hold.
std::string content_to_text(const CapsuleContent& content);
// Throws FRT_ERR_FORMAT, naming the member, for anything that content_to_text() does not write.
// What two members say must agree.
CapsuleContent content_from_text(std::string_view text);

// The model that a capsule is to continue; 0: not known.
struct ContentModel {
  uint64_t vocabulary = 0;  // tokens
  uint64_t chunk = 0;       // its prefill_chunk
};
// Throws FRT_ERR_FORMAT if the content cannot be of `model`, FRT_ERR_MISMATCH if it is of one with
// another chunk.
void check_content(const CapsuleContent& content, const ContentModel& model);

constexpr const char* kMixedBuilds = "-mixed";
// Puts kMixedBuilds behind the fingerprint, once, if the path says that it belongs there.
void mark_mixed(CapsuleContent& content);
// 16 hexadecimal digits that tell the states of one model, build and layout from all others.
std::string fingerprint_digest(std::span<const frt_fingerprint_field> fields);

// Sets in content.path what another build computed. `other_build`: as the Capsule of that content
// says. Returns what to tell people of the capsule `name`; empty: this build computed all of it.
std::string note_builds(CapsuleContent& content, const std::string& name,
                        std::string_view other_build);

// Sets content.fingerprint from the manifest that core wrote (core/src/capsule/FILE_FORMAT.md), and
// compares what content and manifest both say. Throws FRT_ERR_FORMAT with both.
void take_manifest(CapsuleContent& content, const std::string& manifest);
// Compares the boundary alone.
void check_content(const CapsuleContent& content, uint64_t rows);

}  // namespace frt::host
