// SPDX-License-Identifier: Apache-2.0
// npz.hpp - named arrays in a file that numpy reads: a zip archive of .npy members, stored, not
// compressed.
#pragma once

#include <frt/base.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

struct NpyArray {
  frt_dtype dtype = FRT_DTYPE_NONE;  // u8, bool, f32, f64, i32, i64
  std::vector<uint64_t> shape;
  std::string data;  // C order

  uint64_t count() const noexcept;
  template <class T>
  std::span<const T> as() const noexcept {  // the caller knows the type
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
};

using NpzArrays = std::map<std::string, NpyArray>;

template <class T>
NpyArray npy_array(frt_dtype dtype, std::vector<uint64_t> shape, std::span<const T> values) {
  return {dtype, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes())};
}
NpyArray npy_text(std::string_view text);  // u8; numpy: bytes(a).decode()

// Writes to a temporary name and renames: a file of that name is complete. Throws FRT_ERR_IO.
void write_npz(const std::filesystem::path& path, const NpzArrays& arrays);
// Throws FRT_ERR_NOT_FOUND, FRT_ERR_IO, FRT_ERR_FORMAT (what and where), FRT_ERR_UNSUPPORTED for
// compressed members and other types.
NpzArrays read_npz(const std::filesystem::path& path);
// The same from memory, `name` for messages; for tests and fuzzing.
NpzArrays parse_npz(std::string_view bytes, const std::string& name);

}  // namespace frt::host
