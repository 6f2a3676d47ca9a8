// SPDX-License-Identifier: Apache-2.0
// setup_lock.hpp - one call at a time in plugins that have no context yet: the promise of `[setup]`
// in frt/base.h for device_count, device_info, device_open, device_close, open and close, and for
// what a file does as it is loaded.
#pragma once

#include <mutex>

namespace frt::core {

// Held while a plugin of this process is tried, loaded, opened or closed, and while devices are
// counted, described, opened or closed. The functions of core that do so take it themselves; who
// does several of these in a row takes it around all. Several hosts of a process wait for each
// other; a thread may take it again. Waits without a limit. A child process of fork(2) has a lock
// of its own, which nobody holds.  [any]
std::unique_lock<std::recursive_mutex> lock_plugin_setup();

}  // namespace frt::core
