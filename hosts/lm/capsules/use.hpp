// SPDX-License-Identifier: Apache-2.0
// use.hpp - which capsules of a folder living processes use, so that no budget of one
// removes what another one needs.
//
// A lock per capsule on a byte of the file ".in-use" (open file description locks, at an offset
// made from the name): shared by all who use the capsule, alone for the one who removes it. The
// system drops them when a process ends, however that happens. A file system without such locks
// protects nothing; where ".in-use" cannot be opened, nothing may be removed.
//
// One thread at a time.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>

namespace frt::host {

class CapsuleUse {
 public:
  explicit CapsuleUse(std::filesystem::path folder) : folder_(std::move(folder)) {}
  ~CapsuleUse();
  CapsuleUse(const CapsuleUse&) = delete;
  CapsuleUse& operator=(const CapsuleUse&) = delete;

  // From now on this object uses `name`. Waits a quarter of a second for one who is alone with it.
  // False: that one still is; whether the file will be gone nobody knows yet.
  bool hold(const std::string& name);
  // It does no more.
  void release(const std::string& name);
  // Alone with `name` until release() or yield(). False: somebody else uses it, or
  // nobody can tell.
  bool claim(const std::string& name);
  // Takes a claim() back: `name` is used by this object if it was before.
  void yield(const std::string& name);

 private:
  bool lock(const std::string& name, short type);

  std::filesystem::path folder_;
  int file_ = -1;
  std::set<std::string> held_;
};

}  // namespace frt::host
