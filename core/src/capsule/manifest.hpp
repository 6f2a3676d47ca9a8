// SPDX-License-Identifier: Apache-2.0
// manifest.hpp - the manifest of a capsule file: JSON in a canonical form (FILE_FORMAT.md). Neither
// function builds a tree of values: a tree allocates when it is destroyed, which ends the process
// where memory has run out.
#pragma once

#include <frt/core/digest.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include "capsule/state.hpp"

namespace frt::core {

// Throws FRT_ERR_INVALID_ARGUMENT where a name or a field is no UTF-8 text.  [any]
std::string write_manifest(const frt_state_s& state, uint64_t boundary,
                           const Fingerprint& fingerprint, std::string_view metadata);

struct ManifestFacts {
  uint64_t boundary = 0, payload_bytes = 0, metadata_bytes = 0;
  std::string metadata_digest;
  Fingerprint fingerprint;
};
// Throws FRT_ERR_FORMAT with what is wrong.  [any]
ManifestFacts read_manifest(std::string_view text);

}  // namespace frt::core
