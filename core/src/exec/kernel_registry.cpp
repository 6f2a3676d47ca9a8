// SPDX-License-Identifier: Apache-2.0
#include "exec/kernel_registry.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/reading.hpp>
#include <frt/text.hpp>
#include <frt/weights.hpp>
#include <string_view>

namespace frt::core {
namespace {

constexpr std::string_view kBackendNames = "frt.";  // names that only backends have

bool takes_types(frt_dtype_set set, frt_dtype_set asked) {
  return set == 0 || (asked & ~set) == 0;
}

// What is missing, as two lists with the same names: with reasons, and without.
struct Missing {
  std::vector<std::string> names, reasons;
};

// With reasons and advice; without them where only the names fit into an frt_error. What does not
// fit at all goes to the log with reasons (set_error).
std::string describe(const Missing& missing) {
  const std::size_t count = missing.names.size();
  const auto of_backend = [](const std::string& name) { return name.starts_with(kBackendNames); };
  const bool all = std::all_of(missing.names.begin(), missing.names.end(), of_backend);
  const bool none = std::none_of(missing.names.begin(), missing.names.end(), of_backend);
  const std::string advice =
      std::string(none ? "" : "; use a backend or a weight format that has them") +
      (all ? ""
           : "; a model's own operators are registered with kernels_register, and the owner that "
             "it "
             "returns is given to kernels_resolve");
  const auto text = [&](const std::vector<std::string>& parts) {
    std::string list;
    for (const std::string& part : parts) list += (list.empty() ? "" : ", ") + part;
    return (all ? "the backend lacks " : "there is no kernel for ") + std::to_string(count) +
           (count == 1 ? " operator: " : " operators: ") + list;
  };
  const std::string complete = text(missing.reasons) + advice;
  if (complete.size() < FRT_ERROR_CAPACITY) return complete;
  const std::string names = text(missing.names);
  for (const std::string& shorter : {names + advice, names}) {
    if (shorter.size() < FRT_ERROR_CAPACITY) return shorter;
  }
  return complete;
}

KernelEntry read(const frt_kernel_desc& kernel, const std::string& sender) {
  if (!kernel.name || !*kernel.name || *kernel.name == '?') {
    throw Error(FRT_ERR_INVALID_ARGUMENT, sender + ": a kernel descriptor has no name");
  }
  std::string name(checked_text(kernel.name, sender + ": the name of a kernel"));
  if (!kernel.kernel.launch) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, sender + ": kernel " + name + " has no launch function");
  }
  return {std::move(name),
          kernel.inputs,
          kernel.outputs,
          {kernel.weights, kernel.weights + kernel.weight_count},
          kernel.kernel};
}

// How well the kernels of one list answer a request.
struct Search {
  const KernelRequest& request;
  const KernelEntry* best = nullptr;
  bool known = false, inputs_fit = false, outputs_fit = false;
  std::vector<frt_weight_format> lacking = {request.weights.begin(), request.weights.end()};

  void look(std::span<const KernelEntry> entries, std::string_view name) {
    for (const KernelEntry& entry : entries) {
      if (entry.name != name) continue;
      known = true;
      if (!takes_types(entry.inputs, request.inputs)) continue;
      inputs_fit = true;
      if (!takes_types(entry.outputs, request.outputs)) continue;
      outputs_fit = true;
      const auto taken = [&](const frt_weight_format& format) {
        return weight_taken(entry.weights, format);
      };
      std::erase_if(lacking, taken);
      if (std::all_of(request.weights.begin(), request.weights.end(), taken)) best = &entry;
    }
  }

  // Why `name` has no kernel.
  std::string reason(std::string_view name, bool registered) const {
    std::string text(name);
    if (!known && name.starts_with(kBackendNames)) return text;
    if (!known) {
      return text + (registered ? " (neither registered with this owner nor of the backend)"
                                : " (not of the backend, and no owner was given)");
    }
    if (!inputs_fit) return text + " (not for " + dtype_names(request.inputs) + " inputs)";
    if (!outputs_fit) return text + " (not for " + dtype_names(request.outputs) + " outputs)";
    if (!lacking.empty()) return text + " (not for weights in " + weight_texts(lacking) + ")";
    return text + " (no single kernel for weights in " + weight_texts(request.weights) + ")";
  }
};

}  // namespace

std::vector<KernelEntry> read_owned_kernels(const frt_kernel_desc* kernels, uint64_t count,
                                            uint32_t stride) {
  std::vector<KernelEntry> all;
  const std::string sender = "kernels_register";
  for (const frt_kernel_desc& kernel : read_kernels(kernels, count, stride, sender)) {
    KernelEntry entry = read(kernel, sender);
    if (entry.name.starts_with(kBackendNames)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "kernel " + entry.name +
                      ": names that begin with \"frt.\" belong to backends; use a prefix of your "
                      "own, such as \"acme.\"");
    }
    const auto same = [&](const KernelEntry& other) {
      return other.name == entry.name && other.inputs == entry.inputs &&
             other.outputs == entry.outputs && other.weights == entry.weights;
    };
    if (std::any_of(all.begin(), all.end(), same)) {
      throw Error(FRT_ERR_EXISTS, "kernel " + entry.name +
                                      " comes twice for the same types; give one another name or "
                                      "revision");
    }
    all.push_back(std::move(entry));
  }
  return all;
}

void KernelRegistry::add_backend(const frt_kernels_v1& table, frt_backend_device device,
                                 const std::string& sender) {
  for (const frt_kernel_desc& kernel : list_kernels(table, device, sender)) {
    backend_.push_back(read(kernel, sender));
  }
}

std::vector<frt_kernel> KernelRegistry::resolve(std::span<const KernelEntry> own,
                                                std::span<const char* const> names,
                                                const KernelRequest& request) const {
  std::vector<frt_kernel> kernels;
  Missing missing;
  for (const char* requested : names) {
    if (!requested) throw Error(FRT_ERR_INVALID_ARGUMENT, "kernels_resolve: a null name");
    const bool optional = *requested == '?';
    const std::string_view name = requested + (optional ? 1 : 0);
    Search search{request};
    search.look(own, name);
    if (!search.best) search.look(backend_, name);
    kernels.push_back(search.best ? search.best->kernel : frt_kernel{});
    if (search.best || optional) continue;
    missing.names.emplace_back(name);
    missing.reasons.push_back(search.reason(name, !own.empty()));
  }
  if (!missing.names.empty()) throw Error(FRT_ERR_NOT_FOUND, describe(missing));
  return kernels;
}

}  // namespace frt::core
