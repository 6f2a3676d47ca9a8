// SPDX-License-Identifier: Apache-2.0
// manifest_loader.hpp - reads manifests, and says in the log what is odd about them.
//
//     core::Log log;
//     core::Registry registry(core::RegistryOptions{});
//     ManifestLoader loader(registry, log, {.hosts = {lm_host_kind()}});
//     LoadedModel loaded(loader, "demo.toml", "");      // loaded_model.hpp
#pragma once

#include <frt/core/log.hpp>
#include <frt/core/manifest.hpp>
#include <frt/core/registry.hpp>

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

// A kind of table [host.NAME] that a program understands.
struct HostKind {
  core::HostSchema schema;
  // What the schema cannot say: throws frt::Error for a table that a program would refuse later
  // without a look at a model. A text that begins "KEY = " points at that key. May be empty.
  std::function<void(const core::Manifest& manifest, const core::HostSpec& host)> check{};
};

struct LoaderOptions {
  std::vector<HostKind> hosts;    // other kinds of tables are refused
  std::vector<std::string> sets;  // PATH=VALUE over every manifest
  // Of the program itself: what `environment` of a table may name beside those of the manifest.
  std::vector<std::string> environments{};
};

class ManifestLoader {
 public:
  // `registry` and `log` are borrowed.  [setup]
  ManifestLoader(core::Registry& registry, core::Log& log, LoaderOptions options);

  core::Registry& registry() noexcept { return registry_; }
  core::Log& log() noexcept { return log_; }
  std::vector<core::HostSchema> host_schemas() const;

  // Reads and checks a manifest, and logs its warnings, each once. A folder stands for the manifest
  // that checkpoint_folder.hpp makes of it. `sets` go over those of the options; `no_plugin_paths`
  // as in core::ManifestRequest. Throws core::DiagnosticError for what is wrong with its text, else
  // ExitError with ExitCode::kManifest, or kPlugin for a folder that no plugin takes.  [setup]
  core::Manifest load(const std::string& path, const std::vector<std::string>& sets = {},
                      const std::string& no_plugin_paths = {});

  // The same of a manifest in memory; `path` names it and is where its relative paths start.
  // [setup]
  core::Manifest load_text(std::string_view text, const std::filesystem::path& path,
                           const std::vector<std::string>& sets = {});

  // Logs each plugin file that was refused, and why; each once. A model that cannot be had may be
  // in one of them.  [setup]
  void warn_of_rejected_plugins();

 private:
  core::ManifestRequest request(const std::vector<std::string>& sets) const;
  core::Manifest checked(const std::function<core::Manifest()>& read);
  void check_hosts(const core::Manifest& manifest) const;
  void warn(const char* source, const std::string& text);

  core::Registry& registry_;
  core::Log& log_;
  LoaderOptions options_;
  std::set<std::string> warnings_;  // logged
};

}  // namespace frt::host
