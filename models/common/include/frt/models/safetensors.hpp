// SPDX-License-Identifier: Apache-2.0
// frt/models/safetensors.hpp - reads the weights of a checkpoint: one safetensors file, or a folder
// with one file, with shards and their index, or with several files and no index.
//
// Files are read, not mapped. Their headers are untrusted: every rule of the format is checked
// before a byte of data can be read (see src/safetensors_header.cpp), so a TensorView always lies
// inside its file and its bytes always match dtype and shape. All bytes of a file are of the
// version that was opened: a file that is truncated or written to while it is open is an error of
// the next read. What breaks a rule is one frt::Error that names file, tensor, what was expected
// and what was found:
//
//   FRT_ERR_NOT_FOUND    no such file, shard or tensor (with the closest name there is)
//   FRT_ERR_IO           the operating system refused to open or read, or the file was changed
//   FRT_ERR_FORMAT       the bytes break the format
//   FRT_ERR_UNSUPPORTED  a dtype that has no meaning here
//   FRT_ERR_MISMATCH     the tensor is there with another shape or dtype than required
#pragma once

#include <frt/base.h>
#include <frt/io/file.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt::models {

class SafetensorsFile;

// One tensor of a file. A view: valid as long as the SafetensorsFile or Checkpoint it came from.
struct TensorView {
  std::string_view name;
  std::string_view file;                 // path of the file it lies in
  frt_dtype dtype = FRT_DTYPE_NONE;      // never F4_E2M1: packed formats are stored as U8
  std::span<const std::uint64_t> shape;  // row-major; empty for a scalar
  std::uint64_t bytes = 0;               // elements() * dtype_bits / 8
  const SafetensorsFile* source = nullptr;
  std::uint64_t offset = 0;  // of the data in the file

  std::uint64_t elements() const;  // product of `shape`; 1 for a scalar

  // Copies the bytes from `at` on, little endian. FRT_ERR_OUT_OF_RANGE outside the tensor,
  // FRT_ERR_IO if the file was changed.  [any]
  void read(std::uint64_t at, std::span<std::byte> target) const;
  std::vector<std::byte> read() const;  // all of them
};

// "BF16", "F8_E4M3", ...: the name safetensors files use; "?" if files cannot hold `dtype`.  [any]
std::string_view safetensors_dtype_name(frt_dtype dtype);

// The reverse; FRT_DTYPE_NONE if unknown.  [any]
frt_dtype safetensors_dtype(std::string_view name);

// "[2, 3]"; "[]" for a scalar.  [any]
std::string shape_text(std::span<const std::uint64_t> shape);

// One open file.
class SafetensorsFile {
 public:
  // Opens and validates.  [setup]
  static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }  // size of the whole file

  // Every tensor, in the order of the header.  [any]
  std::span<const TensorView> tensors() const { return tensors_; }

  // The `__metadata__` strings, in the order of the header.  [any]
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }

  // Copies the bytes from `offset` on. FRT_ERR_IO if the file was truncated or written to since it
  // was opened. One that was renamed over or removed is read as it was.  [any]
  void read(std::uint64_t offset, std::span<std::byte> target) const;

  // FRT_ERR_IO if the file was written to, or if its path shows another file or none by now.  [any]
  void require_unchanged() const;

  // SHA-256 of the whole file as 64 hex digits, computed once and kept. FRT_ERR_IO if the file was
  // written to since it was opened.  [any]
  const std::string& sha256() const;

 private:
  friend class Checkpoint;
  SafetensorsFile() = default;
  struct DigestCache;
  struct Version;
  void require_same_content() const;

  std::string path_;
  io::Descriptor descriptor_;
  std::unique_ptr<const Version> version_;
  std::uint64_t bytes_ = 0;
  std::string names_;                  // backing of TensorView::name
  std::vector<std::uint64_t> shapes_;  // backing of TensorView::shape
  std::vector<TensorView> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::unique_ptr<DigestCache> digest_;
};

// Parses and validates `bytes` as the content of a safetensors file named `name` in errors, without
// opening anything; for tests and fuzzing of the parser.  [any]
void validate_safetensors(std::span<const std::byte> bytes, std::string_view name);

// All tensors of a checkpoint, whatever the number of files. Which files belong to a folder:
//
//   1. `model.safetensors.index.json` is there: the files its `weight_map` names. Each entry must
//      be found where it says.
//   2. else `model.safetensors`, alone;
//   3. else every `*.safetensors` in it.
//
// In cases 1 and 2 a sidecar `mtp.safetensors` is added when present. A tensor that two files hold
// is an error. Cheap to copy (shares the files).
class Checkpoint {
 public:
  // `path`: a `.safetensors` file or a folder.  [setup]
  static Checkpoint open(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  std::span<const std::shared_ptr<const SafetensorsFile>> files() const { return files_; }

  // Every tensor, sorted by name.  [any]
  std::span<const TensorView> tensors() const;

  // The tensor, or null.  [any]
  const TensorView* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  // The tensor; FRT_ERR_NOT_FOUND with the closest name there is.  [any]
  const TensorView& get(std::string_view name) const;

  // get(), and the shape must be `shape`: FRT_ERR_MISMATCH with both.  [any]
  const TensorView& require(std::string_view name, std::span<const std::uint64_t> shape) const;
  const TensorView& require(std::string_view name,
                            std::initializer_list<std::uint64_t> shape) const;

  // The name nearest to `name` by edit distance; empty if nothing is near.  [any]
  std::string closest(std::string_view name) const;

  std::uint64_t bytes() const;  // of all tensors, headers not counted

  // FRT_ERR_IO if a file was written to, replaced or removed since the checkpoint was opened. A
  // model asks at the end of its load: then all that it read is of one version of the set.  [any]
  void require_unchanged() const;

  // {file name, SHA-256 in hex} per file, sorted by name; `threads` files at a time (0: one per
  // core). Digests are kept by the files.  [any]
  std::vector<std::pair<std::string, std::string>> digests(unsigned threads = 0) const;

 private:
  struct Index;
  std::string path_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::shared_ptr<const Index> index_;
};

}  // namespace frt::models
