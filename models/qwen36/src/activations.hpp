// SPDX-License-Identifier: Apache-2.0
// activations.hpp - the device memory a step computes in: the ports of the role and the working
// buffers, sized for the largest step. What is never alive at the same time shares memory: the
// inside of a mixer and the inside of a feed-forward block.
#pragma once

#include <frt/ops/sample.h>

#include <cstdint>
#include <frt/exec.hpp>
#include <frt/qwen36/config.hpp>

#include "precision.hpp"

namespace frt::qwen36 {

// The buffers of frt/role/lm.h.
struct Ports {
  Buffer tokens, slot_ids, positions, lengths, starts, sampling, mask;
  Buffer next_tokens, log_probabilities, logits;
  std::int64_t mask_words = 0;  // per entry
};

// Shapes in rows R of the largest step; A: activation type. Pointers into one buffer.
struct Activations {
  std::int32_t* ids = nullptr;  // (R)
  void* residual = nullptr;     // (R, hidden) residual type
  void* x = nullptr;            // (R, hidden) A, normed input of a block
  void* mixed = nullptr;        // (R, hidden) A, output of a mixer
  void* fed = nullptr;          // (R, hidden) A, output of a feed-forward block
  void* hidden = nullptr;       // (R, hidden) A, after the final norm
  void* last = nullptr;         // (1, hidden) A, of the last row of a prefill

  // Inside a delta-net mixer.
  void* qkv = nullptr;        // (R, channels) A
  void* convolved = nullptr;  // (R, channels) A
  void* z = nullptr;          // (R, value heads * value dim) A
  void* a = nullptr;          // (R, value heads) A
  void* b = nullptr;          // (R, value heads) A
  void* o = nullptr;          // (R, value heads * value dim) A
  void* gated = nullptr;      // (R, value heads * value dim) A

  // Inside an attention mixer.
  void* query = nullptr;     // (R, query width) A
  void* key = nullptr;       // (R, kv width) A
  void* value = nullptr;     // (R, kv width) A
  void* rotated = nullptr;   // (R, heads * head dim) A
  void* attended = nullptr;  // (R, heads * head dim) A

  // Inside a feed-forward block.
  void* gate = nullptr;                // (R, intermediate) A
  void* inner = nullptr;               // (R, intermediate) A
  float* router_logits = nullptr;      // (R, experts)
  std::int32_t* expert_ids = nullptr;  // (R, chosen)
  float* expert_weights = nullptr;     // (R, chosen)
  void* shared_hidden = nullptr;       // (R, 2 * shared width) A
  void* shared_y = nullptr;            // (R, hidden) A
  float* shared_scale = nullptr;       // (R)

  // The draft head; its layer uses the buffers above.
  std::int32_t* mtp_ids = nullptr;       // (R)
  std::int32_t* mtp_position = nullptr;  // (max batch)
  std::int32_t* mtp_length = nullptr;    // (max batch)
  void* mtp_embedded = nullptr;          // (R, hidden) A
  void* mtp_trunk = nullptr;             // (R, hidden) A, rows of the trunk, one position back
  void* mtp_pair = nullptr;              // (R, [embedded | trunk]) A
  void* mtp_residual = nullptr;          // (R, hidden) residual type
  void* mtp_hidden = nullptr;            // (R, hidden) A, the head's own normed rows

  Buffer memory;
};

// [setup]
Ports make_ports(const Context& context, const Config& config, std::int64_t prefill_chunk,
                 std::int64_t max_batch);
std::uint64_t port_bytes(const Config& config, std::int64_t prefill_chunk, std::int64_t max_batch);

// `rows`: of the largest step. With a null context nothing is allocated and the size is returned
// in `bytes` alone.  [setup]
Activations make_activations(const Context& context, const Config& config,
                             const Precision& precision, std::int64_t rows, std::int64_t max_batch,
                             bool with_mtp, std::uint64_t* bytes = nullptr);

}  // namespace frt::qwen36
