// SPDX-License-Identifier: Apache-2.0
// file.hpp - a capsule file of this kind of host, read without a model: core checks the
// file, this the host's metadata and whether both say the same.
#pragma once

#include <frt/capsule.h>

#include <filesystem>
#include <string>

#include "lm/capsules/content.hpp"

namespace frt::host {

inline constexpr const char* kCapsuleSuffix = ".capsule";

// The content, checked against the manifest. Reads everything but the payload. Throws
// FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT (damaged, or put together: what differs), FRT_ERR_IO.  [any]
CapsuleContent read_capsule_content(const frt_capsules_v1& capsules,
                                    const std::filesystem::path& folder, const std::string& name);

// Checks every byte, and the content as above.  [any]
CapsuleContent verify_capsule_file(const frt_capsules_v1& capsules,
                                   const std::filesystem::path& folder, const std::string& name);

}  // namespace frt::host
