// SPDX-License-Identifier: Apache-2.0
#include "lm/capsules/use.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "lm/token_digest.hpp"

namespace frt::host {
namespace {

constexpr const char* kFile = ".in-use";
// Who claims a capsule examines its file, which takes milliseconds, and may then let it stay.
constexpr std::chrono::milliseconds kLongestClaim{250}, kAskAgain{2};

}  // namespace

CapsuleUse::~CapsuleUse() {
  if (file_ >= 0) close(file_);
}

// False: somebody's lock is in the way; or the file that tells cannot be opened, for who wants to
// be alone. A file system without locks protects nothing.
bool CapsuleUse::lock(const std::string& name, short type) {
  if (file_ < 0) {
    file_ = open((folder_ / kFile).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                 0600);
    if (file_ < 0) return type != F_WRLCK;
  }
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(digest_of(name, {}).low >> 1);
  range.l_len = 1;
  return fcntl(file_, F_OFD_SETLK, &range) == 0 || (errno != EAGAIN && errno != EACCES);
}

bool CapsuleUse::hold(const std::string& name) {
  if (held_.contains(name)) return true;
  const auto end = std::chrono::steady_clock::now() + kLongestClaim;
  while (!lock(name, F_RDLCK)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kAskAgain);
  }
  held_.insert(name);
  return true;
}

void CapsuleUse::release(const std::string& name) {
  held_.erase(name);
  if (file_ >= 0) lock(name, F_UNLCK);
}

bool CapsuleUse::claim(const std::string& name) {
  return lock(name, F_WRLCK);
}

void CapsuleUse::yield(const std::string& name) {
  lock(name, held_.contains(name) ? F_RDLCK : F_UNLCK);
}

}  // namespace frt::host
