// SPDX-License-Identifier: Apache-2.0
// child.hpp - code of a plugin in a process of its own, which may crash, hang, print without end or
// fork: the caller gets told, goes on, and leaves no process behind.
//
// The child is a fork, so the caller has no other thread and has loaded no plugin. It answers in
// JSON lines over a pipe of its own. What it writes to stdout and stderr goes to the caller's
// stderr, as far as kMostOutput; its last line is usually the reason of a crash.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace frt::conformance {

inline constexpr std::size_t kMostOutput = 64 * 1024;  // bytes of one child that are shown

using Message = nlohmann::ordered_json;
using Send = std::function<void(const Message&)>;

struct ChildEnd {
  enum class How { kExited, kCrashed, kHung };
  How how = How::kExited;
  std::string words;  // of the others: "signal Segmentation fault; its last words: ..."
};

// A signal that ends a program came (note_interruptions).
struct Interrupted {
  int signal;
};

// Runs `body` in a child and gives `receive` what it sends. A child that is silent for `patience`
// seconds hangs and is killed; 0: it may take for ever. Whatever it started is killed, too, also
// after a good end. A process that cannot be killed is left behind some seconds later. Throws
// FRT_ERR_IO where the system gives no process, and Interrupted.  [setup]
ChildEnd run_in_child(const std::function<void(const Send&)>& body, const Send& receive,
                      double patience);

// Orphans of a child become children of this process, and run_in_child() kills them. Children that
// this process has at the call are left alone. Once, before the first child.
void adopt_orphans();

// SIGHUP, SIGINT, SIGTERM and SIGPIPE no longer end this program, unless they are ignored: the
// next or running run_in_child() kills what it started and throws Interrupted.
void note_interruptions();

}  // namespace frt::conformance
