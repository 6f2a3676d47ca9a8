// SPDX-License-Identifier: Apache-2.0
// frt/lm/tables.hpp - the C tables of a model object, one file each: model_table.cpp (capsule),
// role_table.cpp, text_tables.cpp (tokenizer and chat), selftest.cpp.
#pragma once

#include <frt/capsule.h>
#include <frt/chat.h>
#include <frt/model.h>
#include <frt/role/lm.h>
#include <frt/selftest.h>
#include <frt/tokenizer.h>
#include <frt/model.hpp>
#include <frt/plugin.hpp>

#include <frt/models/tokenizer.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <frt/lm/model.hpp>

namespace frt::lm {

// What an frt_model points to, as frt/model.hpp wants it.
struct ModelObject {
  ModelObject(const Host& host_, std::unique_ptr<const Architecture> architecture,
              const frt_model_params& params)
      : host(host_), model(host_, std::move(architecture), params) {}

  const frt_model_info& info() const noexcept { return model.info(); }
  const std::vector<frt_port>& ports() const noexcept { return model.ports(); }
  const std::vector<frt_model_graph>& graphs() const noexcept { return model.graphs(); }
  const void* extension(std::string_view id) noexcept;
  const frt_capsule_layout& capsule_layout() { return model.parts().layout->table(); }
  frt_state capsule_state() { return model.parts().state.handle(); }
  const std::vector<frt_fingerprint_field>& fingerprint();

  Host host;
  Model model;
  std::vector<frt_fingerprint_field> fields;  // views of Model::fingerprint()
};

inline ModelObject& model_of(frt_model model) noexcept {
  return *object<ModelObject>(model);
}

const frt_role_lm_v1& role_table() noexcept;
const frt_capsule_v1& capsule_table() noexcept;
const frt_tokenizer_v1& tokenizer_table() noexcept;
const frt_chat_v1& chat_table() noexcept;
const frt_selftest_v1& selftest_table() noexcept;

}  // namespace frt::lm
