// SPDX-License-Identifier: Apache-2.0
// A fork copies a mutex as it is, but not the thread that holds it. So a child process gets a new
// one. The one of its parent stays: a call that forked inside the lock may still unlock it.
#include <frt/core/setup_lock.hpp>

#include <pthread.h>

#include <memory>

namespace frt::core {
namespace {

struct Lock {
  std::recursive_mutex mutex;
  std::unique_ptr<Lock> of_parent;
};

std::unique_ptr<Lock>& current() {
  // Never destroyed: a thread may hold it until the process ends.
  static auto* const kLock = [] {
    ::pthread_atfork(nullptr, nullptr, [] {
      auto fresh = std::make_unique<Lock>();
      fresh->of_parent = std::move(current());
      current() = std::move(fresh);
    });
    return new std::unique_ptr<Lock>(std::make_unique<Lock>());
  }();
  return *kLock;
}

}  // namespace

std::unique_lock<std::recursive_mutex> lock_plugin_setup() {
  return std::unique_lock(current()->mutex);
}

}  // namespace frt::core
