// SPDX-License-Identifier: Apache-2.0
// frt/lm/plugin.hpp - the plugin object of a decoder; it only remembers its host. `Traits` has
//
//   static std::unique_ptr<const Architecture> open(const frt_model_params& params);   [setup]
//   static const frt_config_schema_v1& options();                                      [any]
#pragma once

#include <frt/model.h>

#include <filesystem>
#include <frt/lm/tables.hpp>
#include <frt/model.hpp>
#include <frt/plugin.hpp>
#include <memory>
#include <string_view>

namespace frt::lm {

template <class Traits>
class Plugin {
 public:
  Plugin(const Host& host, const ConfigView&) : host_(host) {}

  const void* extension(std::string_view id) noexcept {
    static constexpr frt_model_v1 kTable = frt::model_table<Plugin, ModelObject>();
    return id == FRT_EXT_MODEL ? &kTable : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &Traits::options() : nullptr;
  }

  std::unique_ptr<ModelObject> create(const frt_model_params& params) {
    return std::make_unique<ModelObject>(host_, Traits::open(params), params);
  }

 private:
  Host host_;
};

// The folder of a checkpoint; FRT_ERR_NOT_FOUND if there is none.  [setup]
std::filesystem::path checkpoint_folder(const frt_model_params& params);

}  // namespace frt::lm
