// SPDX-License-Identifier: Apache-2.0
// hollow_model.hpp - a language model that has a role and nothing inside, on the mock backend:
// every step samples the same token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capsule_rig.hpp"
#include "lm/lm_model.hpp"

namespace frt::test {
namespace hollow {

constexpr uint32_t kChunk = 8, kBatch = 2, kContext = 64, kVocabulary = 100;

struct Inside {
  frt_lm_info info{};
};

inline frt_status role_info(frt_model model, frt_lm_info* info) {
  *info = reinterpret_cast<const Inside*>(model)->info;
  return FRT_OK;
}
// More forgiving than a model should be.
inline frt_status prefill_key(frt_model, uint32_t, frt_shape_key* key) {
  *key = 0;
  return FRT_OK;
}
inline frt_status decode_key(frt_model, uint32_t batch, frt_shape_key* key, uint32_t* entries) {
  *key = 0;
  *entries = batch;
  return FRT_OK;
}
inline constexpr frt_role_lm_v1 kRole = {
    sizeof(frt_role_lm_v1), 0, role_info, prefill_key, decode_key, nullptr, nullptr};

inline const void* extension(frt_model, const char* id) {
  return std::string(id) == FRT_EXT_ROLE_LM ? &kRole : nullptr;
}

}  // namespace hollow

struct HollowModel {
  DeviceRig rig;
  frt_region region = {"rows", FRT_REGION_ROWS, FRT_DTYPE_U8, 4, hollow::kContext, 0};
  State state;
  std::vector<Buffer> buffers;
  Graph graph;
  hollow::Inside inside;
  frt_model_v1 table{};

  // With `masks` it takes some, and samples what it always does.
  explicit HollowModel(uint32_t page_rows, uint32_t slots = 2, bool masks = false) {
    const frt_capsule_layout layout{sizeof(layout), 1, &region, page_rows, 0};
    state = State(core::state_table(), rig.context, layout, slots, "arena");
    const auto buffer = [&](const char* name) -> frt_buffer {
      buffers.push_back(rig.context.alloc(FRT_SPACE_DEVICE, 1024, name));
      return buffers.back();
    };
    frt_lm_info& info = inside.info;
    info.struct_size = sizeof(info);
    info.vocabulary = hollow::kVocabulary;
    info.max_context = hollow::kContext;
    info.slots = slots;
    info.prefill_chunk = hollow::kChunk;
    info.max_batch = hollow::kBatch;
    info.state = state.handle();
    info.tokens = buffer("tokens");
    info.slot_ids = buffer("slots");
    info.positions = buffer("positions");
    info.lengths = buffer("lengths");
    info.starts = buffer("starts");
    info.sampling = buffer("sampling");
    info.next_tokens = buffer("next");
    info.log_probabilities = buffer("probabilities");
    if (masks) info.mask = buffer("mask");
    if (masks) info.mask_words = (hollow::kVocabulary + 31) / 32;
    graph = rig.context.create_graph("step", 1);
    graph.capture(0, [&](const Recorder& recorder) { recorder.fill(info.next_tokens, 0, 4, 7); });
    info.prefill = info.decode = graph;
    table.struct_size = sizeof(table);
    table.extension = hollow::extension;
  }
  // Another one of 1 KiB, held by this object.
  frt_buffer buffer(const char* name) {
    buffers.push_back(rig.context.alloc(FRT_SPACE_DEVICE, 1024, name));
    return buffers.back();
  }
  host::LmModel model() {
    return host::LmModel(rig.context, core::state_table(), core::capsules_table(), &table,
                         reinterpret_cast<frt_model>(&inside), "m");
  }
};

}  // namespace frt::test
