// SPDX-License-Identifier: Apache-2.0
// episode_state.hpp - everything that one inference leaves for the next, as regions of an arena
// (frt/capsule.h), and the ports that lie in it.
//
//   images, view_mask, prompt_tokens, prompt_length          the observation
//   noise, beta, previous, previous_weights, continuation    how the next chunk is to be made
//   image_tokens  (views * cells, width), what vision() made
//   length        i32 (branches), valid rows of the context
//   context       (layers, branches * (views * cells + max_prompt), [keys | values]), what
//   observe()
//                 made
//   actions       the last chunk
//
// That is all: a capsule restored into slot 0 continues bit for bit, between the parts of an
// inference, too. Graphs work in slot 0. Other slots hold episodes that wait: fork into them, fork
// one of them back into slot 0 to go on with it.
#pragma once

#include <cstdint>
#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <string>

#include "config.hpp"

namespace frt::pi05 {

struct Setup;
struct Precision;

// The buffers of frt/role/policy.h: views of slot 0.
struct Ports {
  Buffer images, view_mask, prompt_tokens, prompt_length, noise, beta, previous, previous_weights,
      continuation, actions;
};

class EpisodeState {
 public:
  // Allocates `setup.slots` zeroed slots.  [setup]
  EpisodeState(const frt_state_v1* states, const Context& context, const Config& config,
               const Precision& precision, const Setup& setup);
  EpisodeState(const EpisodeState&) = delete;
  EpisodeState& operator=(const EpisodeState&) = delete;

  // Memory it takes.
  static std::uint64_t bytes(const Config& config, const Precision& precision, const Setup& setup);

  const frt_capsule_layout& layout() const noexcept { return layout_.table(); }
  std::string canonical_text() const { return layout_.canonical_text(); }
  frt_state handle() const noexcept { return state_.handle(); }
  std::uint64_t slot_bytes() const noexcept { return state_.info().slot_stride; }
  const Ports& ports() const noexcept { return ports_; }
  void* image_tokens() const noexcept { return image_tokens_; }
  void* context_rows() const noexcept { return context_rows_; }
  std::int32_t* length() const noexcept { return length_; }

 private:
  CapsuleLayout layout_;
  State state_;
  Ports ports_;  // goes before the arena
  void* image_tokens_ = nullptr;
  void* context_rows_ = nullptr;
  std::int32_t* length_ = nullptr;
};

}  // namespace frt::pi05
