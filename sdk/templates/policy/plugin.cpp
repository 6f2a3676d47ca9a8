// SPDX-License-Identifier: Apache-2.0
// The plugin of acme.reach: makes policies.
#include "policy.hpp"

#include <frt/exec.hpp>
#include <frt/model.hpp>
#include <frt/plugin.hpp>

#include <memory>
#include <string_view>

namespace acme {
namespace {

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)),
        states_(host.require<frt_state_v1>(FRT_EXT_STATE)) {}

  std::unique_ptr<Policy> create(const frt_model_params& params) const {
    return std::make_unique<Policy>(frt::Context(exec_, params.context), states_, params);
  }
  const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_MODEL ? &kModel : nullptr;
  }
  static const void* static_extension(std::string_view) noexcept { return nullptr; }

 private:
  static constexpr frt_model_v1 kModel = frt::model_table<Plugin, Policy>();

  const frt_exec_v1* exec_;
  const frt_state_v1* states_;
};

}  // namespace
}  // namespace acme

FRT_PLUGIN(acme::Plugin, model, "acme.reach", "0.1.0",
           "summary = \"a policy that goes to the disc that its instruction names\"\n");
