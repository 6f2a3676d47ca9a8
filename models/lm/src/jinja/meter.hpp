// SPDX-License-Identifier: Apache-2.0
// meter.hpp - what a template may cost. A template is a program from outside: source, nesting,
// steps, memory and output are bounded, and each bound is an error with its name, never a crash.
#pragma once

#include <frt/base.h>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace frt::lm::jinja {

constexpr std::size_t kMostSource = std::size_t{1} << 20;  // bytes of a template
constexpr std::size_t kMostTokens = std::size_t{1} << 18;
constexpr int kMostHeight = 160;              // of a syntax tree
constexpr int kMostDepth = 400;               // of nested evaluation, macro calls included
constexpr int kMostNesting = 200;             // of lists in lists
constexpr int kMostScopes = 256;              // a scope within another
constexpr std::int64_t kMostRange = 100'000;  // of range(), as the sandbox of Jinja has it
constexpr std::size_t kMostOutput = std::size_t{32} << 20;   // bytes
constexpr std::size_t kMostMemory = std::size_t{512} << 20;  // bytes of values at a time
// Steps: one for a node, one for 64 bytes that are copied or compared. 20 million take about one
// second, whatever the template.
constexpr std::uint64_t kMostWork = 20'000'000;

// What went wrong at the present line; jinja::Template adds its name and the line.
class Fault : public std::exception {
 public:
  explicit Fault(std::string message, frt_status status = FRT_ERR_INVALID_ARGUMENT)
      : message_(std::move(message)), status_(status) {}
  const char* what() const noexcept override { return message_.c_str(); }
  frt_status status() const noexcept { return status_; }

 private:
  std::string message_;
  frt_status status_;
};

[[noreturn]] inline void fail(std::string message, frt_status status = FRT_ERR_INVALID_ARGUMENT) {
  throw Fault(std::move(message), status);
}

// Of one rendering; outlives its values.
class Meter {
 public:
  void work(std::uint64_t steps) {
    work_ += steps;
    if (work_ > kMostWork) {
      fail("it takes more than " + std::to_string(kMostWork) + " steps", FRT_ERR_UNSUPPORTED);
    }
  }
  // One step for each 64 bytes.
  void copy(std::size_t bytes) { work(bytes / 64); }
  // Of looking for `part` bytes in `whole`: as many comparisons in the worst case.
  void search(std::size_t whole, std::size_t part) { work(whole * (part + 4) / 256); }
  void take(std::size_t bytes) {
    if (bytes > kMostMemory - memory_) {
      fail("its values take more than " + std::to_string(kMostMemory >> 20) + " MiB",
           FRT_ERR_UNSUPPORTED);
    }
    memory_ += bytes;
  }
  void give_back(std::size_t bytes) noexcept { memory_ -= bytes; }

 private:
  std::uint64_t work_ = 0;
  std::size_t memory_ = 0;
};

}  // namespace frt::lm::jinja
