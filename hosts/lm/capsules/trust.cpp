// SPDX-License-Identifier: Apache-2.0
#include "lm/capsules/trust.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <frt/error.hpp>
#include <string>

namespace frt::host {
namespace {

constexpr const char* kOption =
    "; or trust whoever can write there (`capsule_trust = true` in [host.lm], `capsule import "
    "--trust`)";

bool is_ours(const struct stat& facts) noexcept {
  return facts.st_uid == geteuid() || facts.st_uid == 0;
}

bool others_write(const struct stat& facts) noexcept {
  return (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

[[noreturn]] void refuse(const std::string& what, const std::string& path, const std::string& fix) {
  throw Error(
      FRT_ERR_BAD_STATE,
      what + " '" + path + "', and a capsule decides what the model answers; " + fix + kOption);
}

}  // namespace

void require_own_folder(const std::filesystem::path& folder) {
  struct stat facts {};
  if (stat(folder.c_str(), &facts) != 0) return;
  if (!is_ours(facts)) {
    refuse("another user (id " + std::to_string(facts.st_uid) + ") owns the folder of capsules",
           folder.string(), "choose a folder of your own, or take it over (chown)");
  }
  if (others_write(facts) && (facts.st_mode & S_ISVTX) == 0) {
    refuse("other users may write to the folder of capsules", folder.string(),
           "make it private (chmod 700)");
  }
}

void require_own_file(const io::Descriptor& open, const std::filesystem::path& file) {
  struct stat facts {};
  if (fstat(open.get(), &facts) != 0) {
    throw Error(FRT_ERR_IO, file.string() + ": " + std::strerror(errno));
  }
  if (!is_ours(facts)) {
    refuse("another user (id " + std::to_string(facts.st_uid) + ") owns the capsule file",
           file.string(), "make a copy of your own, or take it over (chown)");
  }
  if (others_write(facts)) {
    refuse("other users may write to the capsule file", file.string(),
           "make it private (chmod 600)");
  }
}

bool is_own_file(const struct stat& facts) noexcept {
  return is_ours(facts) && !others_write(facts);
}

}  // namespace frt::host
