// SPDX-License-Identifier: Apache-2.0
// Any text is a manifest or an error; a manifest can be dumped, and its dump is a manifest again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/report/manifest_report.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  frt::core::ManifestRequest request;
  request.environment = [](const std::string&) { return std::optional<std::string>("value"); };
  frt::core::HostSchema host;
  host.type = "lm";
  host.options.push_back({"model", FRT_CONFIG_STRING, "", {}, 0, 0, "", "model", ""});
  request.hosts.push_back(host);
  std::string dump;
  try {
    const auto manifest = frt::core::parse_manifest(
        std::string_view(reinterpret_cast<const char*>(data), size), "/m.toml", request);
    frt::host::dump_json(manifest);
    dump = frt::host::dump_toml(manifest);
  } catch (const frt::Error&) {
    return 0;
  }
  frt::core::parse_manifest(dump, "/m.toml", request);
  return 0;
}
