// SPDX-License-Identifier: Apache-2.0
// manifest_report.hpp - manifests for people and editors: a resolved manifest as text, and the JSON
// Schema of manifests. Only hosts show them; core reads manifests and says what is wrong.
#pragma once

#include <frt/core/manifest.hpp>

#include <string>
#include <vector>

namespace frt::host {

// The complete result as TOML with the source of each value in a comment; a valid manifest.  [any]
std::string dump_toml(const core::Manifest& manifest);
// The same as JSON: each value as {"value": ..., "source": "..."}.  [any]
std::string dump_json(const core::Manifest& manifest);

// A JSON Schema (draft 2020-12) of manifests, for editors.  [any]
std::string manifest_json_schema(const std::vector<core::HostSchema>& hosts,
                                 const std::vector<core::PluginSchema>& plugins);

}  // namespace frt::host
