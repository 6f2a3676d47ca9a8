// SPDX-License-Identifier: Apache-2.0
// A model with the roles and extensions that the language model with defects has not: a policy, a
// critic, text, a selftest, a calibration. Its graph does nothing.
#include <frt/exec.hpp>
#include <frt/model.hpp>

#include "defect_checks.hpp"
#include "defect_parts.hpp"
#include "defect_robot.hpp"
#include "defect_text.hpp"
#include "defects.hpp"

namespace {

class Model {
 public:
  explicit Model(const frt::Context& context)
      : graph_(context.create_graph("step", 1)),
        buffer_(context.alloc(FRT_SPACE_DEVICE, defects::kPortBytes, "ports")) {
    info_.struct_size = sizeof(info_);
    info_.architecture = "nothing";
    info_.formats = "none";
  }
  defects::Parts parts() const noexcept { return {graph_.handle(), buffer_.handle()}; }
  const frt_model_info& info() const { return info_; }
  const std::vector<frt_port>& ports() const { return port_table_; }
  const std::vector<frt_model_graph>& graphs() const { return graph_table_; }
  static const void* extension(std::string_view id) noexcept {
    if (const void* found = defects::text_extension(id)) return found;
    if (const void* found = defects::robot_extension(id)) return found;
    return defects::check_extension(id);
  }

 private:
  frt::Graph graph_;
  frt::Buffer buffer_;
  frt_model_info info_{};
  std::vector<frt_port> port_table_;
  std::vector<frt_model_graph> graph_table_;
};

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)) {}
  std::unique_ptr<Model> create(const frt_model_params& params) {
    return std::make_unique<Model>(frt::Context(exec_, params.context));
  }
  static frt_status open(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                         frt_error* error) {
    return frt::detail::PluginTrampolines<Plugin>::open(host, config, plugin, error);
  }
  static const void* any_extension(frt_plugin plugin, const char* id) {
    return frt::detail::PluginTrampolines<Plugin>::extension(plugin, id);
  }
  const void* extension(std::string_view id) noexcept {
    static constexpr frt_model_v1 kTable = frt::model_table<Plugin, Model>();
    return id == FRT_EXT_MODEL ? &kTable : nullptr;
  }
  static const void* static_extension(std::string_view) noexcept { return nullptr; }

 private:
  const frt_exec_v1* exec_;
};

}  // namespace

defects::Parts defects::parts(frt_model model) noexcept {
  return frt::object<Model>(model)->parts();
}

DEFECT_PLUGIN(Plugin, model, "test.roles");
