// SPDX-License-Identifier: Apache-2.0
// The role "language model", and what a capsule of a slot consists of.
#include <algorithm>
#include <frt/error.hpp>

#include "tables.hpp"

namespace frt::qwen36 {
namespace {

frt_status info(frt_model model, frt_lm_info* out) {
  if (!model || !out) return FRT_ERR_INVALID_ARGUMENT;
  if (out->struct_size < sizeof(frt_lm_info)) return FRT_ERR_ABI;
  *out = model_of(model).model.lm_info();
  return FRT_OK;
}

// The smallest captured size that takes `wanted`, or 0.  [hot]
std::int32_t fitting(const std::vector<std::int32_t>& sizes, std::uint32_t wanted) noexcept {
  if (wanted == 0) return 0;
  for (const std::int32_t size : sizes) {
    if (static_cast<std::uint32_t>(size) >= wanted) return size;
  }
  return 0;
}

frt_status prefill_key(frt_model model, uint32_t rows, frt_shape_key* key) {
  if (!model || !key) return FRT_ERR_INVALID_ARGUMENT;
  const std::int32_t size = fitting(model_of(model).model.parts().prefill_sizes, rows);
  if (size == 0) return FRT_ERR_OUT_OF_RANGE;
  *key = step_key(StepKind::kPrefill, 1, size);
  return FRT_OK;
}

frt_status batch_key(frt_model model, StepKind kind, uint32_t batch, frt_shape_key* key,
                     uint32_t* entries) {
  if (!model || !key || !entries) return FRT_ERR_INVALID_ARGUMENT;
  const std::int32_t size = fitting(model_of(model).model.parts().decode_sizes, batch);
  if (size == 0) return FRT_ERR_OUT_OF_RANGE;
  *key = step_key(kind, size, 1);
  *entries = static_cast<uint32_t>(size);
  return FRT_OK;
}

frt_status decode_key(frt_model model, uint32_t batch, frt_shape_key* key, uint32_t* entries) {
  return batch_key(model, StepKind::kDecode, batch, key, entries);
}

frt_status draft_key(frt_model model, uint32_t batch, frt_shape_key* key, uint32_t* entries) {
  if (model && !model_of(model).model.has_draft()) return FRT_ERR_UNSUPPORTED;
  return batch_key(model, StepKind::kDraft, batch, key, entries);
}

frt_status layout(void* model, const frt_capsule_layout** out, frt_error* error) {
  return guard(error, [&] { *out = &model_of(model).model.parts().layout->table(); });
}

frt_status state(void* model, frt_state* out, frt_error* error) {
  return guard(error, [&] { *out = model_of(model).model.parts().state.handle(); });
}

frt_status fingerprint(void* model, const frt_fingerprint_field** fields, uint64_t* count,
                       frt_error* error) {
  return guard(error, [&] {
    ModelObject& self = model_of(model);
    if (self.fingerprint.empty()) {
      for (const auto& [name, value] : self.model.fingerprint()) {
        self.fingerprint.push_back({name.c_str(), value.c_str()});
      }
    }
    *fields = self.fingerprint.data();
    *count = self.fingerprint.size();
  });
}

}  // namespace

const frt_role_lm_v1& role_table() noexcept {
  static constexpr frt_role_lm_v1 kTable = {
      sizeof(frt_role_lm_v1), 0, info, prefill_key, decode_key, draft_key};
  return kTable;
}

const frt_capsule_v1& capsule_table() noexcept {
  static constexpr frt_capsule_v1 kTable = {sizeof(frt_capsule_v1), 0, layout, state, fingerprint};
  return kTable;
}

}  // namespace frt::qwen36
