// SPDX-License-Identifier: Apache-2.0
// grammar.hpp - what an answer must look like, compiled for one vocabulary, and the place of one
// answer in it.
//
// Before each token a matcher says which tokens may come; that mask goes to the device with the
// step, and what was sampled is told to the matcher. Control tokens never may come.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace frt::host {

// One thread at a time. Behind an exception only the destructor may be called.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  // Writes which tokens may come next: bit i % 32 of word i / 32. `mask` has a word for every 32
  // tokens of the vocabulary, or more. False: none; the text is complete. Throws
  // FRT_ERR_INVALID_ARGUMENT where no token of the vocabulary leads on and the text is not
  // complete, or where finding out takes too long.
  virtual bool fill(std::span<uint32_t> mask) = 0;
  // Whether the text may end here.
  virtual bool complete() const = 0;
  // Goes on behind `token`. False: it may not come here; nothing has changed.
  virtual bool accept(int32_t token) = 0;
  // Takes back the last `tokens` that were accepted, at most all of them.
  virtual void rollback(uint32_t tokens) = 0;
  // Another one at the same place.
  virtual std::unique_ptr<GrammarMatcher> fork() const = 0;
};

// Constant, so every member is [any].
class Grammar {
 public:
  virtual ~Grammar() = default;
  // At the beginning of an answer. The grammar outlives it.
  virtual std::unique_ptr<GrammarMatcher> matcher() const = 0;
  virtual uint64_t bytes() const = 0;  // of memory, about
};

}  // namespace frt::host
