// SPDX-License-Identifier: Apache-2.0
// frt/models/safetensors_writer.hpp - writes safetensors files of any size without holding them in
// memory: declare every tensor, then write the data of each, in any order and in any pieces.
//
// The file appears under its name only when finish() has seen every byte of every tensor: data goes
// to `<path>.partial`, which is synced and renamed. A writer that is destroyed without finish()
// leaves nothing behind. Tensors are laid out by falling element size and then by name, so that
// every tensor is aligned for its dtype.
//
// Errors: FRT_ERR_INVALID_ARGUMENT (a rule below is broken), FRT_ERR_EXISTS (declared twice),
// FRT_ERR_OUT_OF_RANGE (data outside the tensor), FRT_ERR_NOT_FOUND (no such folder), FRT_ERR_IO.
// One writer is used by one thread.
#pragma once

#include <frt/base.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::models {

class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(std::filesystem::path path);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // A `__metadata__` entry, before the first write.  [setup]
  void set_metadata(std::string_view key, std::string_view value);

  // A tensor, before the first write. Returns its size in bytes.  [setup]
  std::uint64_t declare(std::string_view name, frt_dtype dtype,
                        std::span<const std::uint64_t> shape);
  std::uint64_t declare(std::string_view name, frt_dtype dtype,
                        std::initializer_list<std::uint64_t> shape);

  // Appends to the data of `name`: pieces of one tensor come in order, tensors in any order. The
  // first call ends the declarations.  [setup]
  void write(std::string_view name, std::span<const std::byte> data);

  // Checks that all data came, syncs and renames. Returns the size of the file.  [setup]
  std::uint64_t finish();

 private:
  struct Entry {
    frt_dtype dtype = FRT_DTYPE_NONE;
    std::vector<std::uint64_t> shape;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;   // from the start of the data section
    std::uint64_t written = 0;  // bytes so far
  };

  void begin();
  void discard() noexcept;
  void put(std::span<const std::byte> data, std::uint64_t at);

  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::uint64_t data_start_ = 0;  // 8 + length of the header
  std::uint64_t data_bytes_ = 0;
  int file_ = -1;
  bool finished_ = false;
};

// Writes a `model.safetensors.index.json`: which file (a name without folders) holds which tensor,
// and the sum of the tensors' bytes. Written to a partial file and renamed.  [setup]
void write_safetensors_index(const std::filesystem::path& path,
                             const std::map<std::string, std::string>& file_of_tensor,
                             std::uint64_t total_bytes);

}  // namespace frt::models
