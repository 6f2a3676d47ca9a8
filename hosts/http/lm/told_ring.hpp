// SPDX-License-Identifier: Apache-2.0
// told_ring.hpp - what an engine tells a reply, on its way to a worker: one thread writes, one
// reads. No lock, and no allocation once it is made.
#pragma once

#include <frt/base.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace frt::host {

struct Told {
  enum Kind : uint8_t { kStart, kGrammar, kToken, kFinish, kError };
  Kind kind = kToken;
  uint32_t choice = 0;  // of the reply; of kError: the prompt
  int32_t id = 0;       // kToken
  float log_probability = 0;
  uint64_t cached = 0;         // kStart: tokens of the prompt that were not read
  frt_status status = FRT_OK;  // kError
};

class ToldRing {
 public:
  // Holds at least `capacity`.
  void reset(std::size_t capacity) { told_.assign(std::bit_ceil(capacity + 1), {}); }

  std::size_t places() const noexcept { return told_.size(); }  // a power of two

  // ---- the engine's thread ----
  // There is room for more than `spared`.
  bool has_room(std::size_t spared) const noexcept {
    const std::size_t held =
        written_.load(std::memory_order_relaxed) - read_.load(std::memory_order_acquire);
    return told_.size() - held > spared;
  }
  // Only where there is room.
  void push(const Told& told) noexcept {
    const std::size_t at = written_.load(std::memory_order_relaxed);
    told_[at & (told_.size() - 1)] = told;
    written_.store(at + 1, std::memory_order_release);
  }

  // ---- a worker ----
  // False: there is nothing.
  bool pop(Told& told) noexcept {
    const std::size_t at = read_.load(std::memory_order_relaxed);
    if (at == written_.load(std::memory_order_acquire)) return false;
    told = told_[at & (told_.size() - 1)];
    read_.store(at + 1, std::memory_order_release);
    return true;
  }

 private:
  std::vector<Told> told_;  // a power of two of them
  std::atomic<std::size_t> written_{0}, read_{0};
};

}  // namespace frt::host
