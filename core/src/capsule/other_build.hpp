// SPDX-License-Identifier: Apache-2.0
// other_build.hpp - what is remembered of a state that another build computed: of a capsule that
// was loaded from its file, of slots that were restored from such a capsule, and of what is taken
// from them.
#pragma once

#include <frt/capsule.h>
#include <frt/core/digest.hpp>

#include <memory>
#include <string>
#include <vector>

namespace frt::core {

struct OtherBuild {
  std::string difference;   // from this build, a line for each field, for people
  Fingerprint fingerprint;  // of files that such a capsule is saved to
  // Of what this build computes from there on; null: of that, too, it is this.
  std::shared_ptr<const OtherBuild> continued;
};

// Null: this build computed all of it.
using BuildOrigin = std::shared_ptr<const OtherBuild>;

// The origin of a file whose builds are `stored` and differ from those of `here` as `difference`
// says; null if they do not. What continues it is of this build with FRT_FINGERPRINT_CONTINUES.
BuildOrigin origin_of_file(const Fingerprint& here, const Fingerprint& stored,
                           std::string difference);

// Holds the origins of the files that an arena loaded, so that dropping one in a [hot] call never
// frees it. What nothing else holds any more goes with the next file.
class LoadedOrigins {
 public:
  // Keeps `origin`, which may be null.  [setup]
  void keep(const BuildOrigin& origin);
  std::size_t size() const noexcept { return origins_.size(); }

 private:
  std::vector<BuildOrigin> origins_;
};

// Of what continues a state of `origin`; made beforehand.  [hot]
inline BuildOrigin continuation(const BuildOrigin& origin) noexcept {
  return origin && origin->continued ? origin->continued : origin;
}

}  // namespace frt::core
