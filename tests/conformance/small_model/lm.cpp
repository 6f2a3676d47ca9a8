// SPDX-License-Identifier: Apache-2.0
#include "lm.hpp"

#include <frt/plugin.hpp>

#include "defect.hpp"
#include "model.hpp"
#include "text.hpp"

namespace small {
namespace {

constexpr uint32_t kSlots = 4, kChunk = 16, kBatch = 3, kContext = 256;

uint64_t mixed(uint64_t hash, uint64_t value) {
  return (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15) + (hash >> 29);
}

}  // namespace

Lm::Lm(const frt::Context& context, const frt_state_v1* states) : context_(context) {
  layout_.add_fixed("pending", FRT_DTYPE_I32, sizeof(int32_t));
  layout_.add_fixed("sum", FRT_DTYPE_U64, sizeof(uint64_t));
  layout_.add_rows("ids", FRT_DTYPE_I32, sizeof(int32_t), kContext,
                   has_defect("capsule_forgets_row") ? 1 : 0);
  state_ = frt::State(states, context, layout_.table(), kSlots, "small.state");
  auto* base = static_cast<std::byte*>(state_.info().pointer);
  pending_ = base + state_.region("pending");
  sum_ = base + state_.region("sum");
  ids_ = base + state_.region("ids");
  stride_ = state_.info().slot_stride;
  role_.struct_size = sizeof(role_);
  role_.vocabulary = kVocabulary;
  role_.max_context = kContext;
  role_.slots = kSlots;
  role_.prefill_chunk = kChunk;
  role_.max_batch = kBatch;
  buffers_ = frt::LmBuffers(context, role_, context.create_stream("zeros"));
  role_.logits = nullptr;  // a host cannot ask for them
  prefill_ = context.create_graph("prefill", 1);
  decode_ = context.create_graph("decode", 1);
  capture(prefill_, 1, kChunk);
  capture(decode_, kBatch, 1);

  role_.state = state_.handle();
  role_.prefill = prefill_;
  role_.decode = decode_;
}

void Lm::capture(frt::Graph& graph, uint32_t count, uint32_t rows) {
  graph.capture(0, [this, count, rows](const frt::Recorder& to) {
    // Work of the launch itself, which a replay does not make again.
    const uint64_t added = has_defect("launch_works") ? ++launches_ : 0;
    context_.call(to.backend_stream(), [=, this] { step(count, rows, added); });
  });
}

// On the stream's thread.
void Lm::step(uint32_t count, uint32_t rows, uint64_t added) const {
  if (has_defect("state_outside")) added += ++steps_;
  for (uint32_t b = 0; b < count; ++b) {
    const int32_t length = buffers_.lengths.pointer<int32_t>()[b];
    if (length <= 0) continue;
    const auto slot = static_cast<uint64_t>(buffers_.slot_ids.pointer<int32_t>()[b]);
    auto* const pending = reinterpret_cast<int32_t*>(pending_ + slot * stride_);
    auto* const sum = reinterpret_cast<uint64_t*>(sum_ + slot * stride_);
    auto* const ids = reinterpret_cast<int32_t*>(ids_ + slot * stride_);
    const int32_t first = buffers_.positions.pointer<int32_t>()[b];
    for (int32_t i = 0; i < length; ++i) {
      const int32_t given = buffers_.tokens.pointer<int32_t>()[b * rows + static_cast<uint32_t>(i)];
      ids[first + i] = given < 0 ? *pending : given;
      *sum = mixed(*sum, static_cast<uint64_t>(ids[first + i]));
    }
    uint64_t hash = *sum + added;
    for (int32_t i = 0; i < first + length; ++i) hash = mixed(hash, static_cast<uint64_t>(ids[i]));
    *pending = static_cast<int32_t>(hash % kVocabulary);
    buffers_.next_tokens.pointer<int32_t>()[b] = *pending;
    buffers_.log_probabilities.pointer<float>()[b] = -static_cast<float>(hash % 1009) / 1009;
  }
}

const frt_role_lm_v1& lm_table() {
  static constexpr frt_role_lm_v1 kTable = {
      sizeof(frt_role_lm_v1),
      0,
      [](frt_model model, frt_lm_info* info) {
        return frt::fill(info, model_of(model).lm().role());
      },
      [](frt_model, uint32_t rows, frt_shape_key* key) -> frt_status {
        if (rows == 0 || rows > kChunk) return FRT_ERR_OUT_OF_RANGE;
        *key = 0;
        return FRT_OK;
      },
      [](frt_model, uint32_t batch, frt_shape_key* key, uint32_t* entries) -> frt_status {
        if (batch == 0 || batch > kBatch) return FRT_ERR_OUT_OF_RANGE;
        *key = 0;
        *entries = kBatch;
        return FRT_OK;
      },
      [](frt_model, uint32_t, uint32_t, frt_shape_key*, uint32_t*) -> frt_status {
        return FRT_ERR_UNSUPPORTED;
      },
      nullptr};
  return kTable;
}

}  // namespace small
