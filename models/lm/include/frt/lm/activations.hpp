// SPDX-License-Identifier: Apache-2.0
// frt/lm/activations.hpp - the device memory a step computes in: the ports of the role and the
// working buffers, sized for the largest step. What is never alive at the same time shares memory:
// the inside of a mixer and the inside of a feed-forward block.
#pragma once

#include <frt/ops/sample.h>

#include <cstdint>
#include <frt/exec.hpp>
#include <frt/lm/config.hpp>

#include <frt/lm/precision.hpp>

namespace frt::lm {

// Entries * rows of one verify step. Up to so many rows every backend's results are those of the
// rows alone, bit for bit.
inline constexpr std::int64_t kVerifyRows = 16;
inline constexpr std::int64_t kStopIds = 8;     // of an entry of `stops`
inline constexpr std::int64_t kBiasIds = 1024;  // of an entry of `bias`

// What the largest steps are.
struct StepSizes {
  std::int64_t prefill_chunk = 0;
  std::int64_t max_batch = 0;
  bool verify = false;

  std::int64_t rows() const;      // of any step
  std::int64_t out_rows() const;  // that get a token
};

// The buffers of frt/role/lm.h.
struct Ports {
  Buffer tokens, slot_ids, positions, lengths, starts, sampling, mask, bias;
  Buffer next_tokens, log_probabilities, logits;
  Buffer candidates, stops, accepted;  // only with a draft head
  std::int64_t mask_words = 0;         // per entry
};

// Shapes in rows R of the largest step; A: activation type. Pointers into one buffer. An
// architecture with more working buffers derives its own.
struct Activations {
  Activations() = default;
  virtual ~Activations() = default;
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  // Lays everything out from `base` on, which may be null, and returns the size. Called twice: to
  // learn the size, and with the address.
  virtual std::uint64_t lay_out(std::byte* base, const Config& config, const Precision& precision,
                                const StepSizes& sizes);

  std::int32_t* ids = nullptr;  // (R)
  void* residual = nullptr;     // (R, hidden) residual type
  void* x = nullptr;            // (R, hidden) A, normed input of a block
  void* mixer_out = nullptr;    // (R, hidden) A
  void* ffn_out = nullptr;      // (R, hidden) A, of a feed-forward block
  void* hidden = nullptr;       // (R, hidden) A, after the final norm
  void* last = nullptr;         // (1, hidden) A, of the last row of a prefill

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
  std::int32_t* expert_ids = nullptr;  // (R, experts_per_token)
  float* expert_weights = nullptr;     // (R, experts_per_token)
  void* shared_hidden = nullptr;       // (R, 2 * shared width) A
  void* shared_y = nullptr;            // (R, hidden) A
  float* shared_scale = nullptr;       // (R)

  // Of verify steps.
  std::int32_t* committed = nullptr;       // (max batch) rows that are the text
  std::int32_t* draft_position = nullptr;  // (max batch) of the next drafted row

  Buffer memory;

 protected:
  // Gives out working memory, of which a later part may begin again where an earlier one began.
  class Cursor {
   public:
    explicit Cursor(std::byte* base) : base_(base) {}

    void* take(frt_dtype dtype, std::int64_t elements);
    template <class Element>
    Element* take(frt_dtype dtype, std::int64_t elements) {
      return static_cast<Element*>(take(dtype, elements));
    }
    std::uint64_t mark() const { return offset_; }
    void rewind(std::uint64_t mark) { offset_ = mark; }
    std::uint64_t bytes() const { return high_; }

   private:
    std::byte* base_;
    std::uint64_t offset_ = 0;
    std::uint64_t high_ = 0;
  };
  void lay_out_rows(Cursor& cursor, const Config& config, const Precision& precision,
                    std::int64_t rows);
  void lay_out_drafts(Cursor& cursor, std::int64_t max_batch);
  void lay_out_attention(Cursor& cursor, const Config& config, frt_dtype type, std::int64_t rows);
  void lay_out_feed_forward(Cursor& cursor, const Config& config, frt_dtype type,
                            std::int64_t rows);
};

// [setup]
Ports make_ports(const Context& context, const Config& config, const StepSizes& sizes);
std::uint64_t port_bytes(const Config& config, const StepSizes& sizes);

// Allocates the memory of `activations`.  [setup]
void place_activations(const Context& context, const Config& config, const Precision& precision,
                       const StepSizes& sizes, Activations& activations);

}  // namespace frt::lm
