// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, parsed and checked.
#pragma once

#include <frt/models/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::models {

struct HeaderEntry {
  std::string name;
  frt_dtype dtype = FRT_DTYPE_NONE;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // of the data, from the start of the data section
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;  // in file order
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint64_t data_start = 0;  // of the data section, from the start of the file
};

// How many bytes from the start of a file of `file_bytes` bytes hold its header, to judge by
// `begin`, its first eight (or all, if it has fewer). Never much more than the longest header.
std::uint64_t safetensors_head_bytes(std::span<const std::byte> begin, std::uint64_t file_bytes);

// Checks everything the format demands of a file of `file_bytes` bytes that starts with `head`, at
// least as long as safetensors_head_bytes() says.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head,
                                           std::uint64_t file_bytes, std::string_view name);

// The product of `shape` times the element size in bytes; false if it does not fit 64 bits.
bool tensor_bytes(frt_dtype dtype, std::span<const std::uint64_t> shape, std::uint64_t* bytes);

}  // namespace frt::models
