// SPDX-License-Identifier: Apache-2.0
// child_process.hpp - the end of a child process that runs code of a plugin. Neither call waits
// without a limit: a process inside a call of a driver that does not return cannot be killed.
//
// A program that embeds core may ignore SIGCHLD, or wait for every child (waitpid(-1)). Then the
// child's number is free as soon as the child ends, and its status is lost.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

namespace frt::core {

// The status of a child that has ended, nobody here knows how.
inline constexpr int kStatusLost = -1;

// Whether `child` has ended. It is not waited for: unless the program takes it, no other process
// can get its number or that of its group until end_child(). A process that is no child of this one
// has ended.  [any]
bool child_has_ended(pid_t child) noexcept;

// Kills `child` and the process group that it leads, waits for it, and gives its status as waitpid
// does. kStatusLost: it is no child of this process any more; what has its number now is not
// killed. Nothing: it has not ended `limit` after it was killed.  [any]
std::optional<int> end_child(pid_t child, std::chrono::milliseconds limit) noexcept;

}  // namespace frt::core
