// SPDX-License-Identifier: Apache-2.0
#include "lm/capsules/file.hpp"

#include <frt/capsule.hpp>

namespace frt::host {

CapsuleContent read_capsule_content(const frt_capsules_v1& capsules,
                                    const std::filesystem::path& folder, const std::string& name) {
  const CapsuleDescription description = describe_capsule(capsules, folder, name);
  CapsuleContent content = content_from_text(description.metadata);
  take_manifest(content, description.manifest);
  return content;
}

CapsuleContent verify_capsule_file(const frt_capsules_v1& capsules,
                                   const std::filesystem::path& folder, const std::string& name) {
  verify_capsule(capsules, folder, name);
  return read_capsule_content(capsules, folder, name);
}

}  // namespace frt::host
