// SPDX-License-Identifier: Apache-2.0
#include <frt/core/capsules.hpp>

#include "capsule/capsule.hpp"

namespace frt::core {

const frt_capsules_v1* capsules_table() noexcept {
  static constexpr frt_capsules_v1 kTable = {
      sizeof(frt_capsules_v1), 0,
      capsules::reserve,       capsules::trim,
      capsules::usage,         capsules::snapshot,
      capsules::restore,       capsules::fork,
      capsules::fork_slot,     capsules::copy,
      capsules::info,          capsules::query,
      capsules::sync,          capsules::release,
      capsules::read,          capsules::bind,
      capsules::fingerprint,   capsules::save,
      capsules::load_begin,    capsules::load_finish,
      capsules::verify,        capsules::describe,
      capsules::list,          capsules::remove,
      capsules::sweep,
  };
  return &kTable;
}

}  // namespace frt::core
