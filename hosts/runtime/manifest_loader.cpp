// SPDX-License-Identifier: Apache-2.0
#include "runtime/manifest_loader.hpp"

#include <fmt/format.h>
#include <frt/core/diagnostic.hpp>

#include <string_view>
#include <utility>

#include "runtime/checkpoint_folder.hpp"
#include "runtime/exit_code.hpp"

namespace frt::host {
namespace {

constexpr std::string_view kWarning = "warning: ";  // what core::render() begins with

}  // namespace

ManifestLoader::ManifestLoader(core::Registry& registry, core::Log& log, LoaderOptions options)
    : registry_(registry), log_(log), options_(std::move(options)) {}

std::vector<core::HostSchema> ManifestLoader::host_schemas() const {
  std::vector<core::HostSchema> schemas;
  for (const HostKind& kind : options_.hosts) schemas.push_back(kind.schema);
  return schemas;
}

// Everything that a program would refuse later without a look at a model.
void ManifestLoader::check_hosts(const core::Manifest& manifest) const {
  core::Diagnostics findings(manifest.text.get());
  for (const core::HostSpec& host : manifest.hosts) {
    for (const HostKind& kind : options_.hosts) {
      if (kind.schema.type != host.type || !kind.check) continue;
      try {
        kind.check(manifest, host);
      } catch (const Error& error) {
        const std::string problem = error.what();
        core::Diagnostic& finding =
            findings.error(error.status(), host.position, "[host." + host.name + "]: " + problem);
        for (const core::Config::Value& value : host.settings.values()) {
          const bool given = value.from.origin != core::Origin::kDefault;
          if (!given || !problem.starts_with(value.key + " = ")) continue;
          finding.notes.push_back("`" + value.key + "` comes from: " + value.from.text);
        }
      }
    }
  }
  findings.throw_if_errors();
}

core::ManifestRequest ManifestLoader::request(const std::vector<std::string>& sets) const {
  core::ManifestRequest request;
  request.hosts = host_schemas();
  request.environments = options_.environments;
  request.sets = options_.sets;
  request.sets.insert(request.sets.end(), sets.begin(), sets.end());
  request.environment_names = core::process_environment_names();
  request.schemas = &registry_;
  return request;
}

core::Manifest ManifestLoader::load(const std::string& path, const std::vector<std::string>& sets,
                                    const std::string& no_plugin_paths) {
  core::ManifestRequest asked = request(sets);
  asked.no_plugin_paths = no_plugin_paths;
  return checked([&] {
    return is_checkpoint_folder(path)
               ? core::parse_manifest(folder_manifest(registry_, path, asked.sets),
                                      folder_manifest_path(path), asked)
               : core::load_manifest(path, asked);
  });
}

core::Manifest ManifestLoader::load_text(std::string_view text, const std::filesystem::path& path,
                                         const std::vector<std::string>& sets) {
  return checked([&] { return core::parse_manifest(text, path, request(sets)); });
}

core::Manifest ManifestLoader::checked(const std::function<core::Manifest()>& read) {
  core::Manifest manifest = [&] {
    try {
      core::Manifest given = read();
      check_hosts(given);
      return given;
    } catch (const core::DiagnosticError&) {
      throw;
    } catch (const ExitError&) {
      throw;
    } catch (const Error& error) {
      throw ExitError(ExitCode::kManifest, error.status(), error.what());
    }
  }();
  for (const core::Diagnostic& warning : manifest.warnings) {
    // The log says itself that it is a warning.
    warn("manifest", core::render(warning).substr(kWarning.size()));
  }
  return manifest;
}

void ManifestLoader::warn_of_rejected_plugins() {
  for (const core::Candidate& candidate : registry_.candidates()) {
    if (candidate.state != core::CandidateState::kRefused) continue;
    // Most reasons begin with the file.
    const std::string file = fmt::format("'{}'", candidate.path.string());
    const bool named = candidate.reason.starts_with(file);
    warn("plugins", fmt::format("rejected: {}{}", named ? "" : file + ": ", candidate.reason));
  }
}

void ManifestLoader::warn(const char* source, const std::string& text) {
  if (warnings_.insert(text).second) log_.write(source, FRT_LOG_WARNING, text);
}

}  // namespace frt::host
