// SPDX-License-Identifier: Apache-2.0
// tables.hpp - the keys of the manifest's own tables, as option lists: one truth for the reader,
// the dump and the JSON schema.
#pragma once

#include <frt/core/config.hpp>

#include <vector>

namespace frt::core {

const std::vector<OptionSpec>& plugin_table_options();  // [[plugin]]
const std::vector<OptionSpec>& device_table_options();  // [device.NAME], without `options`
const std::vector<OptionSpec>& model_table_options();   // [model.NAME], without `options`

}  // namespace frt::core
