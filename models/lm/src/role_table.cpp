// SPDX-License-Identifier: Apache-2.0
// The role "language model".
#include <algorithm>
#include <frt/error.hpp>
#include <limits>

#include <frt/lm/tables.hpp>

namespace frt::lm {
namespace {

frt_status info(frt_model model, frt_lm_info* out) {
  return model ? fill(out, model_of(model).model.lm_info()) : FRT_ERR_INVALID_ARGUMENT;
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

frt_status batch_key(frt_model model, StepKind kind, uint32_t batch, uint32_t rows,
                     frt_shape_key* key, uint32_t* entries) {
  if (!model || !key || !entries) return FRT_ERR_INVALID_ARGUMENT;
  const std::int32_t size = fitting(model_of(model).model.parts().decode_sizes, batch);
  if (size == 0) return FRT_ERR_OUT_OF_RANGE;
  *key = step_key(kind, size, static_cast<std::int32_t>(rows));
  *entries = static_cast<uint32_t>(size);
  return FRT_OK;
}

frt_status decode_key(frt_model model, uint32_t batch, frt_shape_key* key, uint32_t* entries) {
  return batch_key(model, StepKind::kDecode, batch, 1, key, entries);
}

frt_status check_key(frt_model model, StepKind kind, uint32_t batch, uint32_t rows,
                     frt_shape_key* key, uint32_t* entries) {
  if (!model || !key || !entries) return FRT_ERR_INVALID_ARGUMENT;
  const frt_lm_info& info = model_of(model).model.lm_info();
  if (info.has_draft == 0) return FRT_ERR_UNSUPPORTED;
  if (rows < 2 || rows > info.max_drafts + 1) return FRT_ERR_OUT_OF_RANGE;
  const frt_status status = batch_key(model, kind, batch, rows, key, entries);
  if (status != FRT_OK) return status;
  return *entries * rows <= info.max_rows ? FRT_OK : FRT_ERR_OUT_OF_RANGE;
}

frt_status draft_key(frt_model model, uint32_t batch, uint32_t drafts, frt_shape_key* key,
                     uint32_t* entries) {
  if (drafts == std::numeric_limits<uint32_t>::max()) return FRT_ERR_OUT_OF_RANGE;
  return check_key(model, StepKind::kDraft, batch, drafts + 1, key, entries);
}

frt_status verify_key(frt_model model, uint32_t batch, uint32_t rows, frt_shape_key* key,
                      uint32_t* entries) {
  return check_key(model, StepKind::kVerify, batch, rows, key, entries);
}

}  // namespace

const frt_role_lm_v1& role_table() noexcept {
  static constexpr frt_role_lm_v1 kTable = {
      sizeof(frt_role_lm_v1), 0, info, prefill_key, decode_key, draft_key, verify_key};
  return kTable;
}

}  // namespace frt::lm
