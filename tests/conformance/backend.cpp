// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <frt/error.hpp>
#include <span>
#include <utility>

namespace frt::conformance {
namespace {

// The schema's defaults with the given options over them, as a frt_config.
std::vector<frt_config_value> values_of(const frt_config_schema_v1* schema,
                                        const std::vector<Option>& options) {
  std::vector<frt_config_value> values;
  for (const Option& one : options) {
    const auto* end = schema ? schema->options + schema->option_count : nullptr;
    const auto* begin = schema ? schema->options : nullptr;
    if (std::any_of(begin, end, [&](const auto& known) { return one.key == known.key; })) continue;
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "the plugin has no device option '" + one.key + "'; leave it out");
  }
  if (!schema) return values;
  for (uint64_t i = 0; i < schema->option_count; ++i) {
    const frt_config_option& option = schema->options[i];
    const char* text = option.default_text;
    bool given = false;
    for (const Option& one : options) {
      if (one.key != option.key) continue;
      text = one.text.c_str();
      given = true;
    }
    if (!text) continue;
    frt_config_value value{};
    value.key = option.key;
    value.type = option.type;
    value.is_default = given ? 0 : 1;
    value.text = text;
    value.number = std::atof(text);
    value.integer =
        option.type == FRT_CONFIG_BOOL ? std::strcmp(text, "true") == 0 : std::atoll(text);
    values.push_back(value);
  }
  return values;
}

}  // namespace

Backend::Backend(const std::string& path, uint32_t ordinal, const std::vector<Option>& options)
    : ordinal_(ordinal), options_(options) {
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) throw Error(FRT_ERR_NOT_FOUND, std::string("cannot load a plugin: ") + dlerror());
  descriptor_ = static_cast<const frt_plugin_desc*>(dlsym(library_, FRT_PLUGIN_SYMBOL));
  if (!descriptor_)
    throw Error(FRT_ERR_ABI, path + " exports no " FRT_PLUGIN_SYMBOL ": not a plugin");
  if (descriptor_->kind != FRT_PLUGIN_BACKEND) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, path + " is not a backend plugin");
  }
  static constexpr frt_host kHost = {sizeof(frt_host), FRT_ABI_MAJOR, FRT_ABI_MINOR, nullptr,
                                     [](void*, const char*) -> const void* { return nullptr; }};
  const frt_config nothing{sizeof(frt_config), 0, nullptr};
  frt_error error{};
  frt::check(descriptor_->open(&kHost, &nothing, &plugin_, &error), error, "open " + path);
  backend_ = static_cast<const frt_backend_v1*>(descriptor_->extension(plugin_, FRT_EXT_BACKEND));
  const auto* kernels =
      static_cast<const frt_kernels_v1*>(descriptor_->extension(plugin_, FRT_EXT_KERNELS));
  if (!backend_ || !kernels)
    throw Error(FRT_ERR_ABI, path + " lacks frt.backend/1 or frt.kernels/1");
  variants_ = static_cast<const frt_kernel_variants_draft*>(
      descriptor_->extension(plugin_, FRT_EXT_KERNEL_VARIANTS));

  uint32_t count = 0;
  frt_error why{};
  frt::check(backend_->device_count(plugin_, &count, &why), why, "device_count");
  if (ordinal >= count) {
    throw Error(FRT_ERR_NOT_FOUND, id() + " sees " + std::to_string(count) + " devices" +
                                       (why.message[0] ? std::string(": ") + why.message : ""));
  }
  info_.struct_size = sizeof info_;
  frt::check(backend_->device_info(plugin_, ordinal, &info_, &error), error, "device_info");
  device_ = open_again();
  frt::check(backend_->stream_create(device_, 0, &stream_, &error), error, "stream_create");
  const frt_kernel_desc* first = nullptr;
  uint64_t kernel_count = 0;
  frt::check(kernels->list(device_, &first, &kernel_count, &error), error, "kernels list");
  for (uint64_t i = 0; i < kernel_count; ++i) {
    kernels_.push_back(reinterpret_cast<const frt_kernel_desc*>(
        reinterpret_cast<const std::byte*>(first) + i * kernels->stride));
  }
}

frt_backend_device Backend::open_again() const {
  const auto* schema = static_cast<const frt_config_schema_v1*>(
      descriptor_->extension(nullptr, FRT_EXT_CONFIG_SCHEMA));
  const std::vector<frt_config_value> values = values_of(schema, options_);
  const frt_config config{sizeof(frt_config), static_cast<uint32_t>(values.size()), values.data()};
  frt_backend_device device = nullptr;
  frt_error error{};
  frt::check(backend_->device_open(plugin_, ordinal_, &config, &device, &error), error,
             "device_open");
  return device;
}

// The library stays loaded: unloading is where libraries crash.
Backend::~Backend() {
  if (stream_) backend_->stream_destroy(stream_);
  for (void* block : blocks_) backend_->memory_free(device_, FRT_SPACE_DEVICE, block);
  if (device_) backend_->device_close(device_);
  if (plugin_) descriptor_->close(plugin_);
}

const frt_kernel_desc* Backend::kernel(const std::string& name, const KernelTypes& types,
                                       const WeightFormats& weights) const {
  for (std::size_t i = kernels_.size(); i-- > 0;) {
    const frt_kernel_desc& one = *kernels_[i];
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
