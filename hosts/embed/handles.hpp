// SPDX-License-Identifier: Apache-2.0
// handles.hpp - the numbers that the C API gives out in place of pointers. A handle is never
// dereferenced: one that is NULL, closed, made up or of another kind is not in the table. A call
// holds its objects, so that another thread may close their handles meanwhile.
#pragma once

#include <frt/core/log.hpp>
#include <frt/error.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <utility>

namespace frt::embed {

// All functions are [any].
class Handles {
 public:
  // The one table; it is never destroyed, for a program may call until it ends.
  static Handles& all();

  void* add(std::shared_ptr<void> object, std::type_index type);
  // Null: there is none of this type.
  std::shared_ptr<void> find(const void* handle, std::type_index type) const;
  // The same, and the handle means nothing from now on.
  std::shared_ptr<void> take(const void* handle, std::type_index type);

 private:
  struct Entry {
    std::shared_ptr<void> object;
    std::type_index type;
  };
  mutable std::mutex mutex_;
  std::unordered_map<uintptr_t, Entry> entries_;
  uintptr_t last_ = 0;
};

// An object's class says what people call it, `static constexpr const char* kNoun = "session"`, and
// has the log of its runtime: `const std::shared_ptr<core::Log>& log_owner() const`.
template <class Object>
[[noreturn]] void refuse_handle(const void* handle) {
  const std::string noun = Object::kNoun;
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              handle ? "the handle is no open " + noun + ": it was closed, or is of another kind"
                     : "the " + noun + " is NULL");
}

template <class Handle, class Object>
Handle new_handle(std::shared_ptr<Object> object) {
  return static_cast<Handle>(Handles::all().add(std::move(object), typeid(Object)));
}

template <class Object>
std::shared_ptr<Object> object_of(const void* handle) {
  auto object = std::static_pointer_cast<Object>(Handles::all().find(handle, typeid(Object)));
  if (!object) refuse_handle<Object>(handle);
  return object;
}

template <class Object>
std::shared_ptr<Object> take_object(const void* handle) {
  auto object = std::static_pointer_cast<Object>(Handles::all().take(handle, typeid(Object)));
  if (!object) refuse_handle<Object>(handle);
  return object;
}

// One call of the C API. The whole of an error that no record holds goes to the log of the runtime
// whose object the call asked for first, though the process may have several.
class Call {
 public:
  template <class Object>
  std::shared_ptr<Object> object(const void* handle) {
    auto found = object_of<Object>(handle);
    if (!scope_) work_for(found->log_owner());
    return found;
  }
  void work_for(std::shared_ptr<core::Log> log) {
    log_ = std::move(log);
    scope_.emplace(log_.get());
  }

 private:
  std::shared_ptr<core::Log> log_;
  std::optional<core::LogScope> scope_;
};

// Runs `body(call)`; what it throws becomes a code and a text.
template <class Body>
frt_status api_call(frt_error* error, Body&& body) noexcept {
  Call made;
  return guard(error, [&] { return body(made); });
}

}  // namespace frt::embed
