// SPDX-License-Identifier: Apache-2.0
// plugin.hpp - the plugin object: it only remembers its host.
#pragma once

#include <frt/plugin.hpp>
#include <string_view>

namespace frt::qwen36 {

class Plugin {
 public:
  Plugin(const Host& host, const ConfigView&) : host_(host) {}

  const void* extension(std::string_view id) noexcept;
  static const void* static_extension(std::string_view id) noexcept;

  const Host& host() const noexcept { return host_; }

 private:
  Host host_;
};

}  // namespace frt::qwen36
