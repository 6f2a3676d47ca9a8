// SPDX-License-Identifier: Apache-2.0
#include "exec/kernel_registry.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <string_view>

namespace frt::core {
namespace {

constexpr const char* kWeightNames[FRT_WEIGHT_FORMAT_COUNT] = {
    "f32", "bf16", "fp8_block", "fp8_tensor", "fp8_channel", "nvfp4"};

// "bf16, nvfp4"; formats this core does not know by number.
std::string weight_names(frt_weight_set set) {
  std::string text;
  for (uint32_t format = 0; format < 32; ++format) {
    if (!(set & FRT_WEIGHT_BIT(format))) continue;
    if (!text.empty()) text += ", ";
    text += format < FRT_WEIGHT_FORMAT_COUNT ? kWeightNames[format]
                                             : "format " + std::to_string(format);
  }
  return text;
}

bool takes_activation(frt_dtype_set set, frt_dtype activation) {
  return set == 0 || activation == FRT_DTYPE_NONE ||
         (activation < 32 && (set & FRT_DTYPE_BIT(activation)) != 0);
}

bool takes_weights(frt_weight_set set, frt_weight_set weights) {
  return set == 0 || (weights & ~set) == 0;
}

// What is missing, as two lists with the same names: with reasons, and without.
struct Missing {
  std::vector<std::string> names, reasons;
};

// The longest text that fits into an frt_error: reasons if there is room, else names, else as
// many names as possible and the number of the others.
std::string describe(const Missing& missing) {
  const auto join = [](const std::vector<std::string>& parts, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += (i ? ", " : "") + parts[i];
    return text;
  };
  const std::size_t count = missing.names.size();
  const std::string head =
      "the backend lacks " + std::to_string(count) + (count == 1 ? " operator: " : " operators: ");
  const std::string tail = "; use a backend or a weight format that has them";
  std::string text = head + join(missing.reasons, count) + tail;
  if (text.size() < FRT_ERROR_CAPACITY) return text;
  text = head + join(missing.names, count) + tail;
  if (text.size() < FRT_ERROR_CAPACITY) return text;
  for (std::size_t shown = count - 1; shown > 0; --shown) {
    text = head + join(missing.names, shown) + " and " + std::to_string(count - shown) + " more";
    if (text.size() < FRT_ERROR_CAPACITY) break;
  }
  return text;
}

KernelEntry read(const frt_kernel_desc& kernel) {
  if (!FRT_HAS(&kernel, frt_kernel_desc, kernel)) {
    throw Error(FRT_ERR_ABI, "a kernel descriptor has " + std::to_string(kernel.struct_size) +
                                 " bytes, expected at least " +
                                 std::to_string(sizeof(frt_kernel_desc)) + "; rebuild its plugin");
  }
  if (!kernel.name || !*kernel.name || *kernel.name == '?') {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "a kernel descriptor has no name");
  }
  if (!kernel.kernel.launch) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "kernel " + std::string(kernel.name) + " has no launch function");
  }
  return {kernel.name, kernel.activations, kernel.weights, kernel.kernel};
}

// Calls take(entry) for each of `count` descriptors that lie `stride` bytes apart. `what` names
// the list in errors.
template <class Take>
void read_list(const frt_kernel_desc* kernels, uint64_t count, uint32_t stride, const char* what,
               Take&& take) {
  if (count && (!kernels || stride < sizeof(frt_kernel_desc))) {
    throw Error(FRT_ERR_ABI, std::string(what) + " has a stride of " + std::to_string(stride) +
                                 " bytes, expected at least " +
                                 std::to_string(sizeof(frt_kernel_desc)));
  }
  const auto* at = reinterpret_cast<const std::byte*>(kernels);
  for (uint64_t i = 0; i < count; ++i, at += stride) {
    take(read(*reinterpret_cast<const frt_kernel_desc*>(at)));
  }
}

// How well the kernels of one list answer a request.
struct Search {
  const KernelEntry* best = nullptr;
  bool known = false;
  bool activation_fits = false;
  frt_weight_set known_weights = 0;

  void look(std::span<const KernelEntry> entries, std::string_view name, frt_dtype activation,
            frt_weight_set weights) {
    for (const KernelEntry& entry : entries) {
      if (entry.name != name) continue;
      known = true;
      if (!takes_activation(entry.activations, activation)) continue;
      activation_fits = true;
      known_weights |= entry.weights;
      if (takes_weights(entry.weights, weights)) best = &entry;
    }
  }

  // Why `name` has no kernel.
  std::string reason(std::string_view name, frt_dtype activation, frt_weight_set weights) const {
    std::string text(name);
    if (!known) return text + " (unknown)";
    if (!activation_fits) {
      return text + " (not for " + std::string(dtype_name(activation)) + " activations)";
    }
    if (const frt_weight_set lacking = weights & ~known_weights) {
      return text + " (not for weights in " + weight_names(lacking) + ")";
    }
    return text + " (no single kernel for weights in " + weight_names(weights) + ")";
  }
};

}  // namespace

std::vector<KernelEntry> read_owned_kernels(const frt_kernel_desc* kernels, uint64_t count,
                                            uint32_t stride) {
  std::vector<KernelEntry> all;
  read_list(kernels, count, stride, "kernels_register: the list", [&](KernelEntry entry) {
    if (entry.name.starts_with("frt.")) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "kernel " + entry.name +
                      ": names that begin with \"frt.\" belong to backends; use a prefix of your "
                      "own, such as \"acme.\"");
    }
    const auto same = [&](const KernelEntry& other) {
      return other.name == entry.name && other.activations == entry.activations &&
             other.weights == entry.weights;
    };
    if (std::any_of(all.begin(), all.end(), same)) {
      throw Error(FRT_ERR_EXISTS, "kernel " + entry.name +
                                      " comes twice for the same types; give one another name or "
                                      "revision");
    }
    all.push_back(std::move(entry));
  });
  return all;
}

void KernelRegistry::add_backend(const frt_kernels_v1& table, frt_backend_device device) {
  if (!FRT_HAS(&table, frt_kernels_v1, list) || !table.list) {
    throw Error(FRT_ERR_ABI, "the backend's " FRT_EXT_KERNELS " table has no `list`");
  }
  const frt_kernel_desc* kernels = nullptr;
  uint64_t count = 0;
  frt_error error{};
  check(table.list(device, &kernels, &count, &error), error, "listing the backend's kernels");
  read_list(kernels, count, table.stride, "the backend's " FRT_EXT_KERNELS " table",
            [&](KernelEntry entry) { backend_.push_back(std::move(entry)); });
}

std::vector<frt_kernel> KernelRegistry::resolve(std::span<const KernelEntry> own,
                                                std::span<const char* const> names,
                                                frt_dtype activation,
                                                frt_weight_set weights) const {
  std::vector<frt_kernel> kernels;
  Missing missing;
  for (const char* requested : names) {
    if (!requested) throw Error(FRT_ERR_INVALID_ARGUMENT, "kernels_resolve: a null name");
    const bool optional = *requested == '?';
    const std::string_view name = requested + (optional ? 1 : 0);
    Search search;
    search.look(own, name, activation, weights);
    if (!search.best) search.look(backend_, name, activation, weights);
    kernels.push_back(search.best ? search.best->kernel : frt_kernel{});
    if (search.best || optional) continue;
    missing.names.emplace_back(name);
    missing.reasons.push_back(search.reason(name, activation, weights));
  }
  if (!missing.names.empty()) throw Error(FRT_ERR_NOT_FOUND, describe(missing));
  return kernels;
}

}  // namespace frt::core
