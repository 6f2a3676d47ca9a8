// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <frt/contracts.hpp>
#include <frt/core/context.hpp>
#include <frt/error.hpp>
#include <frt/reading.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include "opened.hpp"

namespace frt::conformance {

core::Config config_of(const std::vector<core::OptionSpec>& schema,
                       const std::vector<Option>& options, const std::string& what) {
  std::vector<core::RawSetting> given;
  for (const Option& one : options) {
    if (std::none_of(schema.begin(), schema.end(),
                     [&](const core::OptionSpec& known) { return known.key == one.key; })) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "the plugin has no " + what + " option '" + one.key + "'; leave it out");
    }
    core::RawSetting setting;
    setting.key = one.key;
    setting.value.kind = core::RawValue::Kind::kUntyped;
    setting.value.text = one.text;
    setting.from = {core::Origin::kFlag, "--set " + one.key + "=" + one.text};
    given.push_back(std::move(setting));
  }
  core::Diagnostics diagnostics;
  core::ResolveContext context;
  context.table = what + " options";
  context.flag_folder = std::filesystem::current_path();
  core::Config config = core::resolve_config(schema, given, context, diagnostics);
  diagnostics.throw_if_errors();
  return config;
}

Backend::Backend(const std::string& path, uint32_t ordinal, const std::vector<Option>& options)
    : ordinal_(ordinal) {
  const core::LoadedPlugin& loaded = loaded_plugin(path);
  if (loaded.card.kind != FRT_PLUGIN_BACKEND) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, path + " is not a backend plugin");
  }
  config_ = config_of(loaded.schema.options, options, "device");
  plugin_.emplace(loaded, config_of(loaded.schema.plugin_options, {}, "plugin"), services_);
  backend_ = &plugin_->require<frt_backend_v1>(FRT_EXT_BACKEND);
  const auto& kernels = plugin_->require<frt_kernels_v1>(FRT_EXT_KERNELS);
  variants_ = static_cast<const frt_kernel_variants_draft*>(
      loaded.descriptor->extension(plugin_->handle(), FRT_EXT_KERNEL_VARIANTS));

  uint32_t count = 0;
  frt_error error{};
  frt::check(backend_->device_count(plugin_->handle(), &count, &error), error, "device_count");
  if (ordinal >= count) {
    throw Error(FRT_ERR_NOT_FOUND, id() + " sees " + std::to_string(count) + " devices" +
                                       (error.message[0] ? std::string(": ") + error.message : ""));
  }
  info_ = core::describe_device(*backend_, plugin_->handle(), ordinal, plugin_->sender());
  device_ = open_again();
  frt::check(backend_->stream_create(device_, 0, &stream_, &error), error, "stream_create");
  kernels_ = list_kernels(kernels, device_, plugin_->sender());
}

frt_backend_device Backend::open_again() const {
  frt_backend_device device = nullptr;
  frt_error error{};
  frt::check(backend_->device_open(plugin_->handle(), ordinal_, config_.c(), &device, &error),
             error, "device_open");
  return device;
}

Backend::~Backend() {
  if (stream_) backend_->stream_destroy(stream_);
  for (void* block : blocks_) backend_->memory_free(device_, FRT_SPACE_DEVICE, block);
  if (device_) backend_->device_close(device_);
}

const frt_kernel_desc* Backend::kernel(const std::string& name, const KernelTypes& types,
                                       const WeightFormats& weights) const {
  for (std::size_t i = kernels_.size(); i-- > 0;) {
    const frt_kernel_desc& one = kernels_[i];
    if (name != one.name) continue;
    const auto takes = [](frt_dtype_set set, frt_dtype_set asked) {
      return set == 0 || (asked & ~set) == 0;
    };
    const std::span patterns(one.weights, one.weight_count);
    const auto taken = [&](const frt_weight_format& format) {
      return weight_taken(patterns, format);
    };
    if (takes(one.inputs, types.inputs) && takes(one.outputs, types.outputs) &&
        std::all_of(weights.begin(), weights.end(), taken))
      return &one;
  }
  return nullptr;
}

void* Backend::allocate(uint64_t bytes) {
  void* block = nullptr;
  frt_error error{};
  frt::check(
      backend_->memory_alloc(device_, FRT_SPACE_DEVICE, bytes > 0 ? bytes : 1, &block, &error),
      error, "memory_alloc");
  blocks_.push_back(block);
  return block;
}

void Backend::release(void* block) {
  std::erase(blocks_, block);
  backend_->memory_free(device_, FRT_SPACE_DEVICE, block);
}

void Backend::write(void* target, const void* source, uint64_t bytes) {
  const frt_backend_copy copy{target, source, bytes, FRT_SPACE_DEVICE, FRT_SPACE_HOST};
  frt::check(backend_->copy(stream_, &copy, 1), "copy to the device");
  sync();
}

void Backend::read(void* target, const void* source, uint64_t bytes) {
  const frt_backend_copy copy{target, source, bytes, FRT_SPACE_HOST, FRT_SPACE_DEVICE};
  frt::check(backend_->copy(stream_, &copy, 1), "copy from the device");
  sync();
}

void Backend::sync() {
  frt::check(backend_->stream_sync(stream_), "stream_sync");
}

}  // namespace frt::conformance
