// SPDX-License-Identifier: Apache-2.0
#include "capsule/other_build.hpp"

#include <utility>

namespace frt::core {

BuildOrigin origin_of_file(const Fingerprint& here, const Fingerprint& stored,
                           std::string difference) {
  if (difference.empty()) return nullptr;
  auto continued = std::make_shared<OtherBuild>();
  continued->difference = difference;
  continued->fingerprint = here;
  continued->fingerprint.add(FRT_FINGERPRINT_CONTINUES,
                             stored.only(Fingerprint::Part::kBuild).hex());
  return std::make_shared<const OtherBuild>(
      OtherBuild{std::move(difference), stored, std::move(continued)});
}

void LoadedOrigins::keep(const BuildOrigin& origin) {
  std::erase_if(origins_, [](const BuildOrigin& one) {
    return one.use_count() == 1 && (!one->continued || one->continued.use_count() == 1);
  });
  if (origin) origins_.push_back(origin);
}

}  // namespace frt::core
