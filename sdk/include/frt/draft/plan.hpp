// SPDX-License-Identifier: Apache-2.0
// frt/draft/plan.hpp - the C++ face of frt/draft/plan.h. Thread tags are those of the C functions.
#pragma once

#include <frt/draft/plan.h>

#include <cstdint>
#include <frt/exec.hpp>
#include <string>
#include <utility>

namespace frt {

// One plan; move-only, released by the destructor.
class Plan {
 public:
  Plan() = default;
  // Throws FRT_ERR_UNSUPPORTED if `table` is NULL: the host has another draft.  [setup]
  Plan(const frt_plan_draft* table, const Context& context, const std::string& name)
      : table_(table), context_(context) {
    if (!table) throw Error(FRT_ERR_UNSUPPORTED, "the host has no " FRT_EXT_PLAN);
    frt_error error{};
    check(table->create(context, name.c_str(), &handle_, &error), error);
  }
  Plan(Plan&& other) noexcept
      : table_(other.table_),
        context_(other.context_),
        handle_(std::exchange(other.handle_, nullptr)) {}
  Plan& operator=(Plan&& other) noexcept {
    if (this != &other) {
      reset();
      table_ = other.table_;
      context_ = other.context_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Plan() { reset(); }

  operator frt_plan() const& noexcept { return handle_; }
  frt_plan handle() const noexcept { return handle_; }
  void reset() noexcept {  // [setup]
    if (handle_) table_->release(std::exchange(handle_, nullptr));
  }

  // Adds a node and returns its index.  [setup]
  uint32_t add(frt_graph graph, frt_shape_key key, const Stream& stream) {
    uint32_t node = 0;
    frt_error error{};
    check(table_->add(handle_, graph, key, stream.handle(), &node, &error), error);
    return node;
  }
  void after(uint32_t node, uint32_t dependency) {  // [setup]
    frt_error error{};
    check(table_->after(handle_, node, dependency, &error), error);
  }
  void compile(uint32_t flags = 0) {  // [setup]
    frt_error error{};
    check(table_->compile(handle_, flags, &error), error);
  }
  bool fused() const noexcept { return table_->fused(handle_) != 0; }  // [any]
  void execute(const Stream& stream) const {                           // [hot]
    context_.checked(try_execute(stream), "plan execute");
  }
  frt_status try_execute(const Stream& stream) const noexcept {  // [hot]
    return table_->execute(handle_, stream.handle());
  }

 private:
  const frt_plan_draft* table_ = nullptr;
  Context context_;
  frt_plan handle_ = nullptr;
};

}  // namespace frt
