// SPDX-License-Identifier: Apache-2.0
// activations.hpp - the working buffers of a Qwen3.6 step: those of any decoder, the inside of a
// delta-net mixer, and the draft head's.
#pragma once

#include <frt/lm/activations.hpp>
#include <frt/qwen36/config.hpp>
#include <vector>

namespace frt::qwen36 {

// Shapes in rows R of the largest step; A: activation type.
struct Activations final : lm::Activations {
  Activations(const Config& config, bool with_mtp) : config_(config), with_mtp_(with_mtp) {}

  std::uint64_t lay_out(std::byte* base, const lm::Config&, const lm::Precision& precision,
                        const lm::StepSizes& sizes) override;

  // Inside a delta-net mixer.
  void* qkv = nullptr;        // (R, channels) A
  void* convolved = nullptr;  // (R, channels) A
  void* z = nullptr;          // (R, value heads * value dim) A
  void* a = nullptr;          // (R, value heads) A
  void* b = nullptr;          // (R, value heads) A
  void* o = nullptr;          // (R, value heads * value dim) A
  void* gated = nullptr;      // (R, value heads * value dim) A

  // What a verify step leaves of each layer for the commit: (kVerifyRows, ...) in place of qkv, a
  // and b. Empty layers for attention; none without a draft head.
  struct Kept {
    void* qkv = nullptr;
    void* a = nullptr;
    void* b = nullptr;
  };
  std::vector<Kept> kept;

  // The draft head; its layer uses the buffers above.
  std::int32_t* mtp_ids = nullptr;       // (R)
  std::int32_t* mtp_position = nullptr;  // (max batch)
  std::int32_t* mtp_length = nullptr;    // (max batch)
  void* mtp_embedded = nullptr;          // (R, hidden) A
  void* mtp_trunk = nullptr;             // (R, hidden) A, rows of the trunk, one position back
  void* mtp_pair = nullptr;              // (R, [embedded | trunk]) A
  void* mtp_residual = nullptr;          // (R, hidden) residual type
  void* mtp_hidden = nullptr;            // (R, hidden) A, the head's own normed rows

 private:
  const Config& config_;
  bool with_mtp_;
};

}  // namespace frt::qwen36
