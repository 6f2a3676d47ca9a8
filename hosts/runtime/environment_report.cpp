// SPDX-License-Identifier: Apache-2.0
#include "runtime/environment_report.hpp"

#include <vector>

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

const char* kind_name(uint32_t kind) {
  return kind == FRT_ENVIRONMENT_IMAGE   ? "image"
         : kind == FRT_ENVIRONMENT_STATE ? "state"
                                         : "array";
}

std::string type_of(const frt_environment_port& port) {
  return array_type(port.dtype, port.rank, port.shape);
}

}  // namespace

Json environment_json(const PluginEnvironment& environment) {
  const frt_environment_info& info = environment.info();
  Json ports = Json::array(), tasks = Json::array();
  for (uint32_t i = 0; i < info.port_count; ++i) {
    const frt_environment_port& port = info.ports[i];
    ports.push_back({{"name", port.name},
                     {"kind", kind_name(port.kind)},
                     {"type", type_of(port)},
                     {"doc", port.doc}});
  }
  for (uint32_t i = 0; i < info.task_count; ++i) {
    tasks.push_back({{"name", info.tasks[i].name}, {"instruction", info.tasks[i].instruction}});
  }
  Json action = {{"type", type_of(*info.action)}, {"doc", info.action->doc}};
  const uint32_t width = environment.action_dim();
  if (info.action_low)
    action["low"] = std::vector<double>(info.action_low, info.action_low + width);
  if (info.action_high) {
    action["high"] = std::vector<double>(info.action_high, info.action_high + width);
  }
  return {{"doc", info.doc},
          {"gives", ports},
          {"action", action},
          {"tasks", tasks},
          {"max_steps", info.max_steps},
          {"period_s", info.period_s},
          {"deterministic", (info.flags & FRT_ENVIRONMENT_DETERMINISTIC) != 0},
          {"hands_off", !environment.subgoals().empty()},
          {"expert", environment.has_expert()},
          {"draws", environment.draws()}};
}

}  // namespace frt::host
