// SPDX-License-Identifier: Apache-2.0
#include "embed/handles.hpp"

namespace frt::embed {

Handles& Handles::all() {
  static auto* const table = new Handles;
  return *table;
}

void* Handles::add(std::shared_ptr<void> object, std::type_index type) {
  constexpr uintptr_t kStep = 16;  // a debugger shows them as aligned addresses
  const std::lock_guard lock(mutex_);
  const uintptr_t number = last_ + kStep;
  entries_.insert_or_assign(number, Entry{std::move(object), type});
  last_ = number;
  return reinterpret_cast<void*>(number);
}

std::shared_ptr<void> Handles::find(const void* handle, std::type_index type) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(reinterpret_cast<uintptr_t>(handle));
  return found == entries_.end() || found->second.type != type ? nullptr : found->second.object;
}

// The object may end here, which takes time: not under the lock.
std::shared_ptr<void> Handles::take(const void* handle, std::type_index type) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(reinterpret_cast<uintptr_t>(handle));
  if (found == entries_.end() || found->second.type != type) return nullptr;
  std::shared_ptr<void> object = std::move(found->second.object);
  entries_.erase(found);
  return object;
}

}  // namespace frt::embed
