// SPDX-License-Identifier: Apache-2.0
// frt.recap_cfg: Pi0.5 policies with classifier-free guidance by advantage tags. Everything is in
// models/pi05; here only the plugin says so.
#include "tables.hpp"

namespace frt::pi05 {

class RecapCfgPlugin : public PolicyPlugin {
 public:
  RecapCfgPlugin(const Host& host, const ConfigView&) : PolicyPlugin(host, Family::kGuided) {}

  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &option_schema(Family::kGuided) : nullptr;
  }
};

}  // namespace frt::pi05

using frt::pi05::RecapCfgPlugin;
FRT_PLUGIN(RecapCfgPlugin, model, "frt.recap_cfg", "0.1.0",
           "summary = \"Pi0.5 robot policies with classifier-free guidance by advantage tags\"\n");
