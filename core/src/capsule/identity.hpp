// SPDX-License-Identifier: Apache-2.0
// identity.hpp - the fingerprint of an arena: core's own fields, then those that were bound.
//
//   abi               the oldest version that works with this one: frt::oldest_abi
//   arena.page_rows   decimal
//   arena.regions     SHA-256 of one line per region in the arena's order:
//                     "name kind dtype row_bytes row_lag\n", kind "fixed" or "rows", numbers
//                     decimal. Slots and max_rows are not in it: more room, the same capsule.
//
// Bound fields may be costly (digests of weight files), so they are asked for once, when the
// fingerprint is first needed.
#pragma once

#include <frt/capsule.h>
#include <frt/core/digest.hpp>

#include <atomic>
#include <functional>
#include <vector>

namespace frt::core {

constexpr std::size_t kMostOwnBuilds = 24;  // fields of builds that an arena may have
constexpr std::size_t kMostBuilds = 32;     // that a file may have

// A fingerprint says little of builds, since it is shown to people: at most `most` fields, names
// and values of one line of at most 256 bytes. Throws `status`.  [any]
void check_builds(const Fingerprint& fingerprint, std::size_t most, frt_status status);

class CapsuleIdentity {
 public:
  using Fields = std::function<std::vector<Fingerprint::Field>()>;

  // Throws FRT_ERR_EXISTS if something is bound.  [setup]
  void bind(Fields fields);
  // Computes it on the first call. Throws FRT_ERR_BAD_STATE if nothing is bound.  [setup]
  const Fingerprint& resolve(const frt_state_s& state);
  // Throws FRT_ERR_BAD_STATE unless it was resolved.  [any]
  const Fingerprint& resolved(const frt_state_s& state) const;
  // The fields as the C table gives them.  [setup]
  const std::vector<frt_fingerprint_field>& views() const noexcept { return views_; }

 private:
  Fields fields_;
  Fingerprint value_;
  std::vector<frt_fingerprint_field> views_;
  std::atomic<bool> ready_{false};
};

}  // namespace frt::core
