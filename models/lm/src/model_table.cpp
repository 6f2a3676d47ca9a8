// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include <frt/lm/tables.hpp>

namespace frt::lm {

const void* ModelObject::extension(std::string_view id) noexcept {
  if (model.tokenizer()) {
    if (id == FRT_EXT_TOKENIZER) return &tokenizer_table();
    if (id == FRT_EXT_CHAT) return &chat_table();
  }
  if (!model.loaded()) return nullptr;
  if (id == FRT_EXT_ROLE_LM) return &role_table();
  if (id == FRT_EXT_CAPSULE) return &capsule_table();
  if (id == FRT_EXT_SELFTEST) return &selftest_table();
  return nullptr;
}

const std::vector<frt_fingerprint_field>& ModelObject::fingerprint() {
  if (fields.empty()) {
    for (const auto& [name, value] : model.fingerprint()) {
      fields.push_back({name.c_str(), value.c_str()});
    }
  }
  return fields;
}

const frt_capsule_v1& capsule_table() noexcept {
  static constexpr frt_capsule_v1 kTable = frt::capsule_table<ModelObject>();
  return kTable;
}

}  // namespace frt::lm
