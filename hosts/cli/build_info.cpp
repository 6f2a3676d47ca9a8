// SPDX-License-Identifier: Apache-2.0
#include "cli/build_info.hpp"

#include <frt_build_info.h>

namespace frt::host {

std::string source_revision() {
  return FRT_SOURCE_REVISION;
}

std::string build_description() {
  return std::string(FRT_BUILD_TYPE) + " " + FRT_SOURCE_REVISION + " " + FRT_COMPILER;
}

}  // namespace frt::host
