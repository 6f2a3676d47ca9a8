// SPDX-License-Identifier: Apache-2.0
#include "tables.hpp"

namespace frt::pi05 {

class Pi05Plugin : public PolicyPlugin {
 public:
  Pi05Plugin(const Host& host, const ConfigView&) : PolicyPlugin(host, Family::kPlain) {}

  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &option_schema(Family::kPlain) : nullptr;
  }
};

}  // namespace frt::pi05

using frt::pi05::Pi05Plugin;
FRT_PLUGIN(Pi05Plugin, model, "frt.pi05", "0.1.0",
           "summary = \"Pi0.5 robot policies: images and instruction to chunks of actions\"\n");
