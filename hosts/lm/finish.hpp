// SPDX-License-Identifier: Apache-2.0
// finish.hpp - why a generation ended, and what its reader wants after each token.
#pragma once

namespace frt::host {

enum class Finish {
  kLength,     // max_new tokens were written
  kStop,       // a stop token, or the reader asked to stop after a stop string
  kContext,    // the slot is full
  kCancelled,  // the caller asked for it
  kDeadline,   // the time that the caller gave is over
};

// "length", "stop", "context", "cancelled", "deadline".
const char* finish_name(Finish finish) noexcept;

// What the reader of a token wants.
enum class Next { kContinue, kStop, kCancel };

}  // namespace frt::host
