// SPDX-License-Identifier: Apache-2.0
// about.hpp - what a running program may tell its clients about itself: models, devices, plugins
// and the values of the manifest, without a path, a file's name or a secret.
//
//   {"object": "about", "program": "frt-host" or another one, "abi": "0.9",
//    "models":   [{"id", "plugin", "plugin_version", "device"}],
//    "devices":  [{"id", "backend", "backend_version", "ordinal"}],
//    "plugins":  [{"id", "kind", "version", "abi"}],
//    "manifest": [{"table": "model.m.options",
//                  "values": [{"key", "value", "source"}]}]}
//
// A number, a switch and a choice have their value. A text has it only where it is its default or
// empty; else "value" is null and "redacted" true, for it may be a path or a key. `source`:
// "default", "manifest", "environment" or "flag".
#pragma once

#include <frt/core/runtime.hpp>

#include <nlohmann/json.hpp>

namespace frt::host {

nlohmann::ordered_json about_json(const core::Runtime& runtime, const char* program);  // [setup]

}  // namespace frt::host
