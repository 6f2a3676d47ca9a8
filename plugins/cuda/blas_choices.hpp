// SPDX-License-Identifier: Apache-2.0
// blas_choices.hpp - the file that remembers which algorithm of cuBLASLt is the fastest for a
// shape.
//
// One file per device model and library version, $XDG_CACHE_HOME/frt (or ~/.cache/frt):
//
//   frt cublaslt 1
//   <key> <algorithm, 128 hexadecimal digits> <microseconds> <checksum of the line before it>
//
// A key has no spaces. A line that is damaged is left out, with a warning, and its shape is timed
// again; so is one whose algorithm the library refuses. Several processes may write: each adds its
// lines to what it finds and replaces the file in one step. Without a home folder nothing is kept.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace frt::cuda {

class BlasChoices {
 public:
  struct Choice {
    std::array<uint64_t, 8> algorithm;  // cublasLtMatmulAlgo_t, opaque
    double microseconds;
  };
  // Where a sentence for people goes.
  using Warn = std::function<void(const std::string& text)>;

  // Reads the file of `device` ("NVIDIA H200") and `version`; a missing one is an empty one.
  // `warn` gets a sentence per damaged file.  [setup]
  BlasChoices(std::string_view device, std::size_t version, const Warn& warn);
  // The same of a file; for tests.
  BlasChoices(std::string path, const Warn& warn);

  // NULL where there is none.  [setup]
  const Choice* find(const std::string& key) const;
  // Keeps it, here and in the file. A file that cannot be written is not an error.  [setup]
  void add(const std::string& key, const Choice& choice);

  const std::map<std::string, Choice>& all() const noexcept { return choices_; }
  const std::string& path() const noexcept { return path_; }  // empty: nothing is kept

 private:
  std::string path_;
  std::map<std::string, Choice> choices_;
};

}  // namespace frt::cuda
