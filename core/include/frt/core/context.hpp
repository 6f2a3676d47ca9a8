// SPDX-License-Identifier: Apache-2.0
// context.hpp - opens a device of a backend plugin as a context of the exec contract, and closes
// it again. Everything else on a context goes through exec_table().
//
// All four functions hold lock_plugin_setup() (setup_lock.hpp) while they call what counts,
// describes, opens or closes devices.
//
// Ownership: a context belongs to whoever opened it. What was made on it (buffers, streams,
// events, graphs, plans, arenas) is released before close_context. The backend table, the kernel
// table and the plugin outlive the context.
#pragma once

#include <frt/backend.h>
#include <frt/exec.h>
#include <frt/kernels.h>

#include <cstdint>
#include <functional>
#include <string>

namespace frt::core {

struct ContextOptions {
  std::string name;        // the user's name of the device, e.g. "gpu0"
  std::string backend_id;  // plugin id, e.g. "frt.cpu"
  bool eager = false;      // graphs run their recipe at each replay (`capture = false`)
  const frt_kernels_v1* kernels = nullptr;  // the backend's operators (FRT_EXT_KERNELS) or null
  // Told before each call of the backend, by its name: for a watch over calls that hang. May be
  // empty.
  std::function<void(const char* call)> entering{};
};

// More devices than any host holds: a backend that counts more is broken, and asking each would
// take all time and memory.
inline constexpr uint32_t kMostDevices = 4096;

// Fills `count` with how many devices the backend sees; if it sees none, `error` may say why.
// Returns what the plugin reports. Throws FRT_ERR_INTERNAL if it throws, FRT_ERR_ABI for more than
// kMostDevices.  [setup]
frt_status count_devices(const frt_backend_v1& backend, frt_plugin plugin,
                         const std::string& sender, uint32_t& count, frt_error& error);

// What the backend says of device `ordinal`, its texts checked. `sender` ("backend 'acme'") names
// it in errors. Throws what the plugin reports, FRT_ERR_ABI, FRT_ERR_FORMAT.  [setup]
frt_device_info describe_device(const frt_backend_v1& backend, frt_plugin plugin, uint32_t ordinal,
                                const std::string& sender);

// Opens device `ordinal`. `config` holds the plugin's per-device options; may be null. Throws
// frt::Error: FRT_ERR_ABI if the table lacks a function of version 1, FRT_ERR_OUT_OF_RANGE if
// there is no such device, and what the plugin reports.  [setup]
frt_context open_context(const frt_backend_v1& backend, frt_plugin plugin, uint32_t ordinal,
                         const frt_config* config, const ContextOptions& options);

// Waits for all work, closes the device and frees the context. Throws FRT_ERR_BAD_STATE, and
// closes nothing, while objects made on it still exist; the text counts them. Null is ignored.
// [setup]
void close_context(frt_context context);

}  // namespace frt::core
