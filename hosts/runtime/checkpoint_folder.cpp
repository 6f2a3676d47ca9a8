// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint_folder.hpp"

#include <fmt/format.h>
#include <frt/plugin.h>
#include <frt/io/json.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <string_view>

#include "runtime/exit_code.hpp"

namespace frt::host {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPluginSet = "model.main.plugin=";
constexpr uint64_t kMostConfig = uint64_t{1} << 20;  // bytes
constexpr std::size_t kMostType = 100;               // bytes of a model_type

constexpr const char* kManifest = R"(schema = 1

[device.main]
backend = "auto"

[model.main]
plugin     = "{}"
device     = "main"
checkpoint = "."

[host.http]
model   = "main"
aliases = "*=main"
)";

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& problem) {
  throw ExitError(ExitCode::kManifest, FRT_ERR_FORMAT,
                  fmt::format("the folder '{}' {}; name a folder with a checkpoint of Hugging "
                              "Face's layout, or a manifest",
                              folder.string(), problem));
}

std::string model_type_of(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) refuse_folder(folder, "has no config.json");
  const io::Json config =
      stage(ExitCode::kManifest, [&] { return io::read_json_file(file, {.bytes = kMostConfig}); });
  if (config.is_object() && config.contains("model_type") && config["model_type"].is_string()) {
    const auto& type = config["model_type"].get_ref<const std::string&>();
    if (!type.empty() && type.size() <= kMostType) return type;
  }
  refuse_folder(folder, "has a config.json without a model_type");
}

[[noreturn]] void refuse_plugins(const std::string& problem) {
  throw ExitError(ExitCode::kPlugin, FRT_ERR_NOT_FOUND,
                  problem + "; name one with --set " + std::string(kPluginSet) + "ID");
}

std::string plugin_for(core::Registry& registry, const std::string& type) {
  std::vector<std::string> takers, known;
  for (const core::Candidate& candidate : registry.candidates()) {
    if (candidate.state != core::CandidateState::kUsable) continue;
    const std::vector<std::string>& types = candidate.card->model_types;
    if (std::ranges::count(types, type) > 0) takers.push_back(candidate.card->id);
    known.insert(known.end(), types.begin(), types.end());
  }
  if (takers.size() == 1) return takers.front();
  if (!takers.empty()) {
    refuse_plugins(fmt::format("several plugins take checkpoints of the model_type '{}': {}",
                               io::printable(type), fmt::join(takers, ", ")));
  }
  std::ranges::sort(known);
  refuse_plugins(fmt::format(
      "no plugin takes checkpoints of the model_type '{}'; there are some "
      "for: {}",
      io::printable(type), known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

}  // namespace

bool is_checkpoint_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

fs::path folder_manifest_path(const fs::path& folder) {
  return folder / "(the defaults)";
}

std::string folder_manifest(core::Registry& registry, const fs::path& folder,
                            const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    // Checked as every --set is, which replaces what stands in the text.
    if (set.starts_with(kPluginSet)) return fmt::format(kManifest, "none");
  }
  return fmt::format(kManifest, plugin_for(registry, model_type_of(folder)));
}

}  // namespace frt::host
