// SPDX-License-Identifier: Apache-2.0
// save.hpp - writing a capsule to a file, with the system calls in between replaceable.
#pragma once

#include <string_view>

#include "capsule/capsule.hpp"
#include "capsule/file_layer.hpp"
#include "capsule/folder.hpp"

namespace frt::core {

// As frt_capsules_v1::save. Throws frt::Error; then the folder is as it was.  [any]
void save_capsule(FileLayer& files, const frt_capsule_s& capsule, const CapsulePath& path,
                  std::string_view metadata, bool replace);

}  // namespace frt::core
