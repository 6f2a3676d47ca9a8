// SPDX-License-Identifier: Apache-2.0
// lm.hpp - the language model: what it says next is a hash of the ids that its slot was fed, which
// are rows, and of a sum of them, which is a FIXED region.
#pragma once

#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/role/lm_buffers.hpp>

#include <atomic>
#include <string_view>
#include <vector>

namespace small {

class Lm {
 public:
  Lm(const frt::Context& context, const frt_state_v1* states);

  const frt_lm_info& role() const { return role_; }
  const frt_capsule_layout& layout() const { return layout_.table(); }
  frt_state state() const { return state_.handle(); }

 private:
  void capture(frt::Graph& graph, uint32_t count, uint32_t rows);
  void step(uint32_t count, uint32_t rows, uint64_t added) const;

  frt::Context context_;
  frt::CapsuleLayout layout_;
  frt::State state_;
  std::byte *pending_ = nullptr, *sum_ = nullptr, *ids_ = nullptr;  // of slot 0
  uint64_t stride_ = 0;                                             // bytes from slot to slot
  frt::LmBuffers buffers_;
  frt::Graph prefill_, decode_;
  mutable std::atomic<uint64_t> steps_{0}, launches_{0};
  frt_lm_info role_{};
};

const frt_role_lm_v1& lm_table();

}  // namespace small
