// SPDX-License-Identifier: Apache-2.0
// frt/reading.hpp - for hosts: what plugins and their models give, checked before its first use.
//
// `sender` names the plugin or model in errors: "plugin acme.fast", "model 'chat'". Header only.
#pragma once

#include <frt/contracts.hpp>
#include <frt/exec.hpp>
#include <frt/text.hpp>

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frt {

// The model's extension `id`, or nothing if it has none. Throws as read_table().  [any]
template <HasContract Table>
std::optional<Table> find_extension(const frt_model_v1& table, frt_model model, const char* id,
                                    std::string_view sender) {
  const void* given = contain(sender, "extension", [&] { return table.extension(model, id); });
  if (!given) return std::nullopt;
  return read_table<Table>(given, sender);
}

// Copies of `count` kernel descriptors that lie `stride` bytes apart. Throws FRT_ERR_ABI for a list
// that cannot be read.  [setup]
inline std::vector<frt_kernel_desc> read_kernels(const frt_kernel_desc* first, uint64_t count,
                                                 uint32_t stride, const std::string& sender) {
  // Some hundred operators with some dozen formats each are usual. All formats are copied, so that
  // their number is limited as a whole, too.
  constexpr uint64_t kMost = 65536;
  constexpr uint32_t kMostPatterns = 4096;
  constexpr uint64_t kMostPatternsInAll = uint64_t{1} << 18;
  const auto broken = [&](const std::string& what) {
    return Error(FRT_ERR_ABI, sender + ": its list of kernels " + what + "; rebuild the plugin");
  };
  if (count == 0) return {};
  if (!first) throw broken("is NULL");
  if (count > kMost) throw broken("has " + std::to_string(count) + " entries");
  if (stride < Contract<frt_kernel_desc>::kBytes || stride > FRT_STRUCT_MAX) {
    throw broken("has a stride of " + std::to_string(stride) + " bytes, expected at least " +
                 std::to_string(Contract<frt_kernel_desc>::kBytes));
  }
  std::vector<frt_kernel_desc> kernels;
  uint64_t patterns = 0;
  const auto* at = reinterpret_cast<const char*>(first);
  for (uint64_t i = 0; i < count; ++i, at += stride) {
    kernels.push_back(read_table<frt_kernel_desc>(at, sender, stride));
    const frt_kernel_desc& kernel = kernels.back();
    if (kernel.weight_count > kMostPatterns || (kernel.weight_count > 0 && !kernel.weights)) {
      throw broken("has an entry with " + std::to_string(kernel.weight_count) + " weight formats" +
                   (kernel.weights ? "" : " at NULL"));
    }
    patterns += kernel.weight_count;
    if (patterns > kMostPatternsInAll) {
      throw broken("has more than " + std::to_string(kMostPatternsInAll) + " weight formats");
    }
  }
  return kernels;
}

// The kernels of an opened device. Throws what the plugin reports, and as read_kernels().  [setup]
inline std::vector<frt_kernel_desc> list_kernels(const frt_kernels_v1& given,
                                                 frt_backend_device device,
                                                 const std::string& sender) {
  const auto table = read_table<frt_kernels_v1>(&given, sender);
  const frt_kernel_desc* first = nullptr;
  uint64_t count = 0;
  frt_error error{};
  const frt_status status =
      contain(sender, "list", [&] { return table.list(device, &first, &count, &error); });
  check(status, error, sender + ": listing its kernels");
  return read_kernels(first, count, table.stride, sender);
}

// What the model says a capsule consists of; it lives as long as the model. Throws what the plugin
// reports, and FRT_ERR_ABI for a layout that cannot be read.  [setup]
inline frt_capsule_layout read_layout(const frt_capsule_v1& table, frt_model model,
                                      const std::string& sender) {
  const frt_capsule_layout* given = nullptr;
  frt_error error{};
  const frt_status status =
      contain(sender, "layout", [&] { return table.layout(model, &given, &error); });
  check(status, error, sender + ": the layout of its capsules");
  const auto layout = read_table<frt_capsule_layout>(given, sender);
  constexpr uint32_t kMost = 1u << 20;
  if (layout.region_count > kMost || (layout.region_count > 0 && !layout.regions)) {
    throw Error(FRT_ERR_ABI, sender + ": its frt_capsule_layout has " +
                                 std::to_string(layout.region_count) + " regions" +
                                 (layout.regions ? "" : " at NULL") + "; rebuild the plugin");
  }
  for (uint32_t i = 0; i < layout.region_count; ++i) {
    const frt_region& region = layout.regions[i];
    const std::string what = sender + ": region " + std::to_string(i) + " of its capsules";
    checked_text(region.name, what + ": its name");
    constexpr auto kFar = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    uint64_t bytes = 0;
    if (region.max_rows <= kFar && region.row_lag >= -static_cast<int64_t>(region.max_rows) &&
        region.row_lag <= static_cast<int64_t>(region.max_rows) &&
        !__builtin_mul_overflow(region.row_bytes, region.max_rows, &bytes)) {
      continue;
    }
    throw Error(FRT_ERR_MISMATCH, what + " has row_bytes = " + std::to_string(region.row_bytes) +
                                      ", max_rows = " + std::to_string(region.max_rows) +
                                      " and row_lag = " + std::to_string(region.row_lag) +
                                      ", which is no size; the plugin is broken");
  }
  return layout;
}

// Throws FRT_ERR_MISMATCH unless `least` <= value <= `most`: for a number that a role reports.
// [any]
inline void require_range(const std::string& sender, const char* name, uint64_t value,
                          uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(FRT_ERR_MISMATCH, sender + ": its role says " + name + " = " + std::to_string(value) +
                                    "; it must be " + std::to_string(least) + " to " +
                                    std::to_string(most));
}

// Bytes of an array with these extents. Throws FRT_ERR_MISMATCH if their number does not fit.
// [any]
inline uint64_t array_bytes(const std::string& sender, const char* port,
                            std::initializer_list<uint64_t> extents) {
  uint64_t bytes = 1;
  for (const uint64_t extent : extents) {
    if (!__builtin_mul_overflow(bytes, extent, &bytes)) continue;
    throw Error(FRT_ERR_MISMATCH, sender + ": its role says that its buffer " + port +
                                      " has more than 2^64 bytes; the plugin is broken");
  }
  return bytes;
}

// Throws FRT_ERR_MISMATCH if a buffer that is there has no room for what its role says of it.
// [any]
inline void require_room(const Context& context, const std::string& sender, const char* port,
                         frt_buffer buffer, uint64_t bytes) {
  if (!buffer) return;
  frt_buffer_info info{};
  info.struct_size = sizeof(info);
  check(context.table().buffer_info(buffer, &info), "buffer_info");
  if (info.bytes >= bytes) return;
  throw Error(FRT_ERR_MISMATCH, sender + ": its buffer " + port + " has " +
                                    std::to_string(info.bytes) + " bytes, its role says " +
                                    std::to_string(bytes) + "; the plugin is broken");
}

}  // namespace frt
