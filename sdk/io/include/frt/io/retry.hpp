// SPDX-License-Identifier: Apache-2.0
// frt/io/retry.hpp - system calls that a signal may end early.
#pragma once

#include <cerrno>

namespace frt::io {

// The result of `call`, which is made again as long as a signal interrupts it (EINTR).  [any]
template <class Call>
auto retried(Call&& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace frt::io
