// SPDX-License-Identifier: Apache-2.0
// frt-host devices: what can run models here, and what `backend = "auto"` would take.
#include <fmt/format.h>
#include <frt/io/utf8.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/progress_view.hpp"
#include "cli/terminal/table.hpp"
#include "runtime/device_survey.hpp"

namespace frt::host {
namespace {

ExitCode devices(App& app, bool as_json) {
  const Survey survey = survey_devices(
      app.registry(), app.log(), {.with_facts = false, .setup_patience = app.setup_patience()});
  if (as_json) {
    nlohmann::ordered_json json = {{"devices", nlohmann::ordered_json::array()},
                                   {"backends", nlohmann::ordered_json::array()},
                                   {"auto",
                                    {{"backend", survey.automatic},
                                     {"reason", survey.automatic_reason},
                                     {"others", survey.automatic_others}}}};
    for (const SurveyedDevice& device : survey.devices) {
      json["devices"].push_back({{"backend", device.plugin},
                                 {"ordinal", device.ordinal},
                                 {"name", device.info.name},
                                 {"architecture", device.info.architecture},
                                 {"driver", device.info.driver},
                                 {"detail", device.info.detail},
                                 {"memory_total", device.info.memory_total},
                                 {"memory_free", device.info.memory_free},
                                 {"compute_units", device.info.compute_units}});
    }
    for (const SurveyedPlugin& plugin : survey.plugins) {
      json["backends"].push_back(
          {{"id", plugin.id}, {"devices", plugin.devices}, {"problem", plugin.problem}});
    }
    print_json(json);
  } else {
    Table table({"backend", "ordinal", "device", "architecture", "units", "memory", "free",
                 "driver", "detail"},
                {1, 4, 5, 6});
    for (const SurveyedDevice& device : survey.devices) {
      table.add({device.plugin, fmt::format("{}", device.ordinal), device.info.name,
                 device.info.architecture, fmt::format("{}", device.info.compute_units),
                 format_bytes(device.info.memory_total), format_bytes(device.info.memory_free),
                 device.info.driver[0] ? device.info.driver : "-", device.info.detail});
    }
    write_out(table.render(TableFormat::kAligned));
    for (const SurveyedPlugin& plugin : survey.plugins) {
      if (!plugin.problem.empty()) {
        print_out("{}: no device: {}\n", plugin.id,
                  io::printable(plugin.problem, io::Keep::kLines));
      }
    }
    if (survey.automatic.empty()) {
      print_out("{}\n", io::printable(survey.automatic_reason, io::Keep::kLines));
    } else {
      print_out("backend = \"auto\": {}, {}\n", survey.automatic,
                io::printable(survey.automatic_reason));
    }
    for (const std::string& other : survey.automatic_others) {
      print_out("  not: {}\n", io::printable(other, io::Keep::kLines));
    }
  }
  return survey.devices.empty() ? ExitCode::kDevice : ExitCode::kOk;
}

}  // namespace

void add_devices_command(App& app) {
  auto json = std::make_shared<bool>(false);
  Command command = app.program().add_subcommand("devices", "List what can run models here");
  command.add_flag("--json", *json, "Print one JSON object");
  command.examples({"devices", "devices --json"});
  app.add_command(command, [&app, json] { return devices(app, *json); });
}

}  // namespace frt::host
