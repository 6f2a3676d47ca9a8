// SPDX-License-Identifier: Apache-2.0
// body_sink.hpp - takes the body of one request as it arrives, where that is too long for memory.
//
// A service gives one to the request in HttpService::admit(); then HttpRequest::body stays empty.
// All calls come on the server's thread and must return quickly. Its destructor is the end of the
// body: it is complete, or its client has left. What a sink holds is its service's to bound: the
// server's budget for bodies does not count it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "http/request.hpp"

namespace frt::host {

class BodySink {
 public:
  virtual ~BodySink() = default;

  // Bytes that the body may have.
  virtual uint64_t limit() const noexcept = 0;
  // Before the first byte. `wake` is called when refusal() has something to say, or when there is
  // room again.  [any]
  virtual void start(std::function<void()> wake) = 0;
  // Takes all of `bytes`. False: the sink is full, and the server waits until it calls `wake`.
  virtual bool put(std::string_view bytes) = 0;
  // What ends the request before its body is complete: the answer. Nothing: it goes on.
  virtual std::optional<HttpResponse> refusal() = 0;
};

}  // namespace frt::host
