// SPDX-License-Identifier: Apache-2.0
// overrides.hpp - values that come over the manifest: environment variables, then flags.
#pragma once

#include <frt/core/config.hpp>
#include <frt/core/manifest.hpp>

#include <set>
#include <string>
#include <vector>

namespace frt::core {

class Overrides {
 public:
  // Reads the "--set" texts of `request`, which is borrowed. Malformed ones are findings.
  Overrides(const ManifestRequest& request, Diagnostics& diagnostics);

  // Appends what overrides table `table` ("model.talk.options") to `settings`. Variables are looked
  // up for `keys`; flags are taken whatever their key, so that a misspelt one is reported.
  void apply(const std::string& table, const std::vector<std::string>& keys,
             std::vector<RawSetting>& settings);

  // Flags that met no table are errors; variables that look like ours but met nothing are warned
  // of.
  void finish(Diagnostics& diagnostics) const;

 private:
  struct Flag {
    std::string text;   // as given
    std::string table;  // "model.talk.options"
    std::string key;
    std::string value;
    bool used = false;
  };
  const ManifestRequest& request_;
  std::vector<Flag> flags_;
  std::vector<std::string> tables_;
  std::set<std::string> variables_;  // every name that would have been taken
};

}  // namespace frt::core
