// SPDX-License-Identifier: Apache-2.0
// plugin.hpp - the plugin object: it only remembers its host.
#pragma once

#include <frt/model.h>
#include <frt/plugin.hpp>
#include <memory>
#include <string_view>

namespace frt::qwen36 {

struct ModelObject;

class Plugin {
 public:
  Plugin(const Host& host, const ConfigView&) : host_(host) {}

  const void* extension(std::string_view id) noexcept;
  static const void* static_extension(std::string_view id) noexcept;

  std::unique_ptr<ModelObject> create(const frt_model_params& params);

 private:
  Host host_;
};

}  // namespace frt::qwen36
