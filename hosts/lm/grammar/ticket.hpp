// SPDX-License-Identifier: Apache-2.0
// ticket.hpp - a grammar that is being compiled. Whoever holds the ticket waits for it.
#pragma once

#include <frt/base.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "lm/grammar/grammar.hpp"

namespace frt::host {

// All members are [any].
class GrammarTicket {
 public:
  bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  // The rest: once it is over.
  const std::shared_ptr<const Grammar>& grammar() const noexcept { return grammar_; }
  frt_status status() const noexcept { return status_; }  // FRT_OK: there is one
  const std::string& message() const noexcept { return message_; }
  void wait() const noexcept { over_.wait(false, std::memory_order_acquire); }

 private:
  friend class GrammarCompiler;
  // The message is empty where there is no memory for `text`.
  void end(std::shared_ptr<const Grammar> grammar, frt_status status,
           std::string_view text) noexcept;

  std::atomic<bool> over_{false};
  std::shared_ptr<const Grammar> grammar_;
  frt_status status_ = FRT_OK;
  std::string message_;
};

}  // namespace frt::host
