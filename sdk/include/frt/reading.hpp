// SPDX-License-Identifier: Apache-2.0
// frt/reading.hpp - for hosts: what plugins and their models give, checked before its first use.
//
// `sender` names the plugin or model in errors: "plugin acme.fast", "model 'chat'". Header only.
#pragma once

#include <frt/contracts.hpp>
#include <frt/exec.hpp>

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
  constexpr uint64_t kMost = 65536;
  constexpr uint32_t kMostPatterns = 4096;
  const auto broken = [&](const std::string& what) {
    return Error(FRT_ERR_ABI, sender + ": its list of kernels " + what + "; rebuild the plugin");
  };
  if (count == 0) return {};
  if (!first) throw broken("is NULL");
  if (count > kMost) throw broken("has " + std::to_string(count) + " entries");
  if (stride < Contract<frt_kernel_desc>::kBytes || stride > kLargestTable) {
    throw broken("has a stride of " + std::to_string(stride) + " bytes, expected at least " +
                 std::to_string(Contract<frt_kernel_desc>::kBytes));
  }
  std::vector<frt_kernel_desc> kernels;
  const auto* at = reinterpret_cast<const char*>(first);
  for (uint64_t i = 0; i < count; ++i, at += stride) {
    kernels.push_back(read_table<frt_kernel_desc>(at, sender, stride));
    const frt_kernel_desc& kernel = kernels.back();
    if (kernel.weight_count > kMostPatterns || (kernel.weight_count > 0 && !kernel.weights)) {
      throw broken("has an entry with " + std::to_string(kernel.weight_count) + " weight formats" +
                   (kernel.weights ? "" : " at NULL"));
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
