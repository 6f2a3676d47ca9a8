// SPDX-License-Identifier: Apache-2.0
// frt-host version: what this program is, which ABI and which extension revisions it speaks.
#include <fmt/format.h>
#include <frt/capsule.h>
#include <frt/chat.h>
#include <frt/config.h>
#include <frt/exec.h>
#include <frt/log.h>
#include <frt/model.h>
#include <frt/progress.h>
#include <frt/role/lm.h>
#include <frt/selftest.h>
#include <frt/tokenizer.h>
#include <CLI/Version.hpp>
#include <boost/version.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.hpp"
#include "cli/build_info.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/version_text.hpp"

namespace frt::host {

nlohmann::ordered_json version_facts() {
  return {
      {"program", "frt-host"},
      {"abi", fmt::format("{}.{}", FRT_ABI_MAJOR, FRT_ABI_MINOR)},
      {"build", build_description()},
      {"host_extensions", {FRT_EXT_EXEC, FRT_EXT_STATE, FRT_EXT_LOG, FRT_EXT_PROGRESS}},
      {"plugin_extensions",
       {FRT_EXT_BACKEND, FRT_EXT_KERNELS, FRT_EXT_CONFIG_SCHEMA, FRT_EXT_MODEL}},
      {"model_extensions",
       {FRT_EXT_ROLE_LM, FRT_EXT_TOKENIZER, FRT_EXT_CHAT, FRT_EXT_CAPSULE, FRT_EXT_SELFTEST}},
      {"libraries",
       {{"boost", BOOST_LIB_VERSION},
        {"cli11", CLI11_VERSION},
        {"fmt",
         fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
        {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)}}}};
}

std::string version_text() {
  return fmt::format("frt-host, ABI {}.{}, {}", FRT_ABI_MAJOR, FRT_ABI_MINOR, build_description());
}

void add_version_command(App& app) {
  auto json = std::make_shared<bool>(false);
  Command command = app.program().add_subcommand("version", "Print the version of this program");
  command.add_flag("--json", *json, "Print one JSON object");
  command.examples({"version", "version --json"});
  app.add_command(command, [json] {
    if (*json) {
      print_json(version_facts());
    } else {
      print_out("{}\n", version_text());
    }
    return ExitCode::kOk;
  });
}

}  // namespace frt::host
