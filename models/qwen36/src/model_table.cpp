// SPDX-License-Identifier: Apache-2.0
#include <frt/error.hpp>
#include <string_view>

#include "plugin.hpp"
#include "tables.hpp"

namespace frt::qwen36 {
namespace {

frt_status create(frt_plugin plugin, const frt_model_params* params, frt_model* model,
                  frt_error* error) {
  return guard(error, [&] {
    if (!plugin || !params || !model || !FRT_HAS(params, frt_model_params, config) ||
        !params->checkpoint) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "create: plugin, params with a checkpoint, and model must be given");
    }
    auto made = std::make_unique<ModelObject>(object<Plugin>(plugin)->host(), *params);
    *model = reinterpret_cast<frt_model>(made.release());
  });
}

void destroy(frt_model model) {
  delete reinterpret_cast<ModelObject*>(model);
}

frt_status info(frt_model model, frt_model_info* out) {
  if (!model || !out) return FRT_ERR_INVALID_ARGUMENT;
  const frt_model_info& known = model_of(model).model.info();
  if (out->struct_size < sizeof(known)) return FRT_ERR_ABI;
  *out = known;
  return FRT_OK;
}

frt_status ports(frt_model model, const frt_port** out, uint64_t* count) {
  if (!model || !out || !count) return FRT_ERR_INVALID_ARGUMENT;
  *out = model_of(model).model.ports().data();
  *count = model_of(model).model.ports().size();
  return FRT_OK;
}

frt_status graphs(frt_model model, const frt_model_graph** out, uint64_t* count) {
  if (!model || !out || !count) return FRT_ERR_INVALID_ARGUMENT;
  *out = model_of(model).model.graphs().data();
  *count = model_of(model).model.graphs().size();
  return FRT_OK;
}

const void* extension(frt_model model, const char* id) {
  if (!model || !id) return nullptr;
  const Model& self = model_of(model).model;
  const std::string_view wanted(id);
  if (self.tokenizer()) {
    if (wanted == FRT_EXT_TOKENIZER) return &tokenizer_table();
    if (wanted == FRT_EXT_CHAT) return &chat_table();
  }
  if (!self.loaded()) return nullptr;
  if (wanted == FRT_EXT_ROLE_LM) return &role_table();
  if (wanted == FRT_EXT_CAPSULE) return &capsule_table();
  if (wanted == FRT_EXT_SELFTEST) return &selftest_table();
  return nullptr;
}

}  // namespace

const frt_model_v1& model_table() noexcept {
  static constexpr frt_model_v1 kTable = {
      sizeof(frt_model_v1), 0, create, destroy, info, ports, graphs, extension};
  return kTable;
}

}  // namespace frt::qwen36
