// SPDX-License-Identifier: Apache-2.0
// child_process.hpp - the end of a child process that runs code of a plugin. Neither call waits
// without a limit: a process inside a call of a driver that does not return cannot be killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

namespace frt::core {

// Whether `child` has ended. It is not waited for: until end_child() no other process can get its
// number or that of its group. A process that is no child of this one has ended.  [any]
bool child_has_ended(pid_t child) noexcept;

// Kills `child` and the process group that it leads, waits for it, and gives its status as waitpid
// does. Nothing: it has not ended `limit` after it was killed.  [any]
std::optional<int> end_child(pid_t child, std::chrono::milliseconds limit) noexcept;

}  // namespace frt::core
