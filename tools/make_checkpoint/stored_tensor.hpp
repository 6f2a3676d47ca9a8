// SPDX-License-Identifier: Apache-2.0
// stored_tensor.hpp - what a checkpoint of a format stores for each tensor of the model: names,
// types and shapes, packed codes and their companions, and the bytes of random values.
#pragma once

#include <frt/base.h>

#include <cstddef>
#include <cstdint>
#include <frt/models/formats.hpp>
#include <frt/qwen36/tensors.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace frt::tools {

struct Choice {
  qwen36::Format format = qwen36::Format::kBf16;
  models::Nvfp4Naming naming = models::Nvfp4Naming::kModelOpt;
  std::uint64_t seed = 1;
};

// One tensor of a file.
struct StoredTensor {
  std::string name;
  frt_dtype dtype = FRT_DTYPE_NONE;
  std::vector<std::uint64_t> shape;

  std::uint64_t bytes() const;
};

// One tensor of the model and what is stored for it: itself, or codes and scales. They belong into
// one file.
struct StoredGroup {
  qwen36::Tensor tensor;
  qwen36::Packing packing = qwen36::Packing::kPlain;
  std::vector<StoredTensor> parts;

  std::uint64_t bytes() const;
};

// Every group of a checkpoint, in file order. Throws FRT_ERR_UNSUPPORTED if a matrix does not fit
// the format (NVFP4 with inputs that are no multiple of 16).
std::vector<StoredGroup> plan_checkpoint(const qwen36::Config& config, const Choice& choice);

// Makes the values of `group` and gives them out as pieces: part name and bytes, in the order the
// parts have to be written, each part in order. Memory stays below some 100 MiB for formats whose
// scales are local.
void generate(const StoredGroup& group, const qwen36::Config& config, const Choice& choice,
              const std::function<void(std::string_view name, std::span<const std::byte>)>& put);

}  // namespace frt::tools
