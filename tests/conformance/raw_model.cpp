// SPDX-License-Identifier: Apache-2.0
#include "raw_model.hpp"

#include <frt/contracts.hpp>
#include <frt/core/context.hpp>
#include <frt/error.hpp>
#include <frt/reading.hpp>

#include <cstdio>

#include "backend.hpp"
#include "option_cases.hpp"

namespace frt::conformance {

bool has_words(const frt_error& error) {
  return error.message[0] != '\0';
}

ModelDevice::ModelDevice(const Subject& subject)
    : backend_(subject.backend.empty() ? subject.reference : subject.backend) {
  const core::Config config = config_of(backend_.loaded.schema.options, {}, "device");
  core::ContextOptions options;
  options.name = "checked";
  options.backend_id = backend_.loaded.card.id;
  options.kernels = &backend_.plugin.require<frt_kernels_v1>(FRT_EXT_KERNELS);
  context_ = core::open_context(backend_.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND),
                                backend_.plugin.handle(), 0, config.c(), options);
}

void ModelDevice::close() {
  core::close_context(context_);
  context_ = nullptr;
}

ModelDevice::~ModelDevice() {
  // The case `model leaves nothing behind` fails for what a model left.
  try {
    close();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

RawModel::RawModel(const Subject& subject)
    : subject_(subject), opened_(subject.plugin), device_(subject) {}

Creation RawModel::create(const std::string& checkpoint, const std::vector<Option>& more,
                          uint32_t flags) const {
  const core::Config config =
      config_of(loaded().schema.options, with_options(subject_.options, more), "model");
  const auto& table = opened_.plugin.require<frt_model_v1>(FRT_EXT_MODEL);
  frt_model_params params{};
  params.struct_size = sizeof(params);
  params.flags = flags;
  params.context = device_.context();
  params.name = "checked";
  params.checkpoint = checkpoint.c_str();
  params.config = config.c();
  subject_.alive();
  Creation made;
  frt_model model = nullptr;
  made.status = contain(sender(), "create", [&] {
    return table.create(opened_.plugin.handle(), &params, &model, &made.error);
  });
  if (made.status != FRT_OK) return made;
  if (!model) throw Error(FRT_ERR_ABI, sender() + ": `create` returns FRT_OK and no model");
  contain(sender(), "destroy", [&] { table.destroy(model); });
  return made;
}

}  // namespace frt::conformance
