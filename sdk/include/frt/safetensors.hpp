// SPDX-License-Identifier: Apache-2.0
// frt/safetensors.hpp - the weights of a small model: one safetensors file.
//
//   8 bytes      the length of the header, little endian
//   header       JSON: {"__metadata__": {key: text, ...},
//                       name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//   data         the offsets count from here
//
// The file may come from anywhere: it must be a regular file, and every tensor must lie inside it
// and have the bytes of its type and shape, or the constructor throws. Errors name the file and the
// tensor: FRT_ERR_NOT_FOUND for a file or a tensor that is not there, FRT_ERR_IO for what the
// operating system refuses, FRT_ERR_FORMAT for bytes that break the format, FRT_ERR_MISMATCH for a
// tensor of another type or shape than asked for. Header only, for little-endian machines; one
// thread at a time.
#pragma once

#include <frt/error.hpp>
#include <frt/json_reader.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frt {

static_assert(std::endian::native == std::endian::little);

class Safetensors {
 public:
  static constexpr uint64_t kMaxHeader = 16u << 20;  // bytes
  static constexpr std::size_t kMaxRank = 8;

  struct Tensor {
    std::string dtype;  // as the file has it: "F32", "BF16", "F8_E4M3" ...
    std::vector<uint64_t> shape;
    uint64_t begin = 0, end = 0;  // bytes, from the beginning of the data
  };

  explicit Safetensors(const std::string& path) : path_(path) {
    // A pipe in place of a file is refused, not waited for.
    file_.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_.descriptor < 0) {
      fail(errno == ENOENT ? FRT_ERR_NOT_FOUND : FRT_ERR_IO, std::strerror(errno));
    }
    struct stat status {};
    if (::fstat(file_.descriptor, &status) != 0) fail(FRT_ERR_IO, std::strerror(errno));
    if (!S_ISREG(status.st_mode)) {
      fail(FRT_ERR_IO, "is no regular file; name one safetensors file");
    }
    const auto bytes = static_cast<uint64_t>(status.st_size);
    uint64_t header_bytes = 0;
    if (bytes < sizeof(header_bytes)) fail(FRT_ERR_FORMAT, "is too short for a safetensors file");
    read_bytes(&header_bytes, sizeof(header_bytes), 0);
    if (header_bytes > kMaxHeader || header_bytes > bytes - sizeof(header_bytes)) {
      fail(FRT_ERR_FORMAT, "says that its header has " + std::to_string(header_bytes) +
                               " bytes; it is no safetensors file, or it was cut");
    }
    std::string header(header_bytes, '\0');
    read_bytes(header.data(), header_bytes, sizeof(header_bytes));
    data_ = sizeof(header_bytes) + header_bytes;
    read_header(header, bytes - data_);
  }
  Safetensors(const Safetensors&) = delete;
  Safetensors& operator=(const Safetensors&) = delete;

  const std::map<std::string, Tensor>& tensors() const noexcept { return tensors_; }

  const Tensor& tensor(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) fail(FRT_ERR_NOT_FOUND, "has no tensor '" + name + "'");
    return found->second;
  }

  // The text of __metadata__; `absent` where there is none of this key.
  std::string metadata(const std::string& key, const std::string& absent = {}) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? absent : found->second;
  }

  // The values of a tensor that must be F32 and of this shape, row-major.
  std::vector<float> read_f32(const std::string& name, const std::vector<uint64_t>& shape) const {
    const Tensor& found = expected(name, "F32", shape);
    std::vector<float> values((found.end - found.begin) / sizeof(float));
    read_bytes(values.data(), found.end - found.begin, data_ + found.begin);
    return values;
  }

  // The bytes of a tensor that must be of this type and shape, row-major, as the file has them:
  // little endian, 2 bytes a value of "BF16", 1 of "F8_E4M3" and of "U8".
  std::vector<std::byte> read(const std::string& name, std::string_view dtype,
                              const std::vector<uint64_t>& shape) const {
    const Tensor& found = expected(name, dtype, shape);
    std::vector<std::byte> bytes(found.end - found.begin);
    read_bytes(bytes.data(), bytes.size(), data_ + found.begin);
    return bytes;
  }

  // "[2, 3]".
  static std::string shape_text(const std::vector<uint64_t>& shape) {
    std::string text;
    for (const uint64_t extent : shape) {
      text += (text.empty() ? "" : ", ") + std::to_string(extent);
    }
    return "[" + text + "]";
  }

 private:
  struct File {
    File() = default;
    File(const File&) = delete;
    ~File() {
      if (descriptor >= 0) ::close(descriptor);
    }
    int descriptor = -1;
  };

  [[noreturn]] void fail(frt_status status, const std::string& what) const {
    throw Error(status, path_ + ": " + what);
  }

  const Tensor& expected(const std::string& name, std::string_view dtype,
                         const std::vector<uint64_t>& shape) const {
    const Tensor& found = tensor(name);
    if (found.dtype == dtype && found.shape == shape) return found;
    fail(FRT_ERR_MISMATCH, "'" + name + "' is " + found.dtype + " " + shape_text(found.shape) +
                               ", expected " + std::string(dtype) + " " + shape_text(shape));
  }

  void read_bytes(void* target, uint64_t bytes, uint64_t at) const {
    auto* to = static_cast<char*>(target);
    while (bytes > 0) {
      const ssize_t got = ::pread(file_.descriptor, to, bytes, static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(FRT_ERR_IO, std::strerror(errno));
      if (got == 0) fail(FRT_ERR_IO, "became shorter while it was read");
      to += got;
      at += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
  }

  void read_header(const std::string& header, uint64_t data_bytes) {
    JsonReader json(path_, header, FRT_ERR_FORMAT);
    json.object([&](const std::string& name) {
      if (name == "__metadata__") {
        json.object([&](const std::string& key) { metadata_[key] = json.string(); });
        return;
      }
      Tensor tensor;
      json.object([&](const std::string& key) {
        if (key == "dtype") {
          tensor.dtype = json.string();
        } else if (key == "shape") {
          json.array([&] {
            tensor.shape.push_back(json.unsigned_number());
            if (tensor.shape.size() > kMaxRank) json.fail("too many dimensions");
          });
        } else if (key == "data_offsets") {
          json.expect('[');
          tensor.begin = json.unsigned_number();
          json.expect(',');
          tensor.end = json.unsigned_number();
          json.expect(']');
        } else {
          json.skip();
        }
      });
      check(name, tensor, data_bytes);
      if (!tensors_.emplace(name, std::move(tensor)).second) {
        fail(FRT_ERR_FORMAT, "has two tensors '" + name + "'");
      }
    });
    json.end();
  }

  void check(const std::string& name, const Tensor& tensor, uint64_t data_bytes) const {
    uint64_t bytes = dtype_bytes(tensor.dtype);
    if (bytes == 0) {
      fail(FRT_ERR_FORMAT, "'" + name + "' is of the unknown type '" + tensor.dtype + "'");
    }
    bool fits = tensor.begin <= tensor.end && tensor.end <= data_bytes;
    for (const uint64_t extent : tensor.shape) {
      fits = fits && !__builtin_mul_overflow(bytes, extent, &bytes);
    }
    if (fits && bytes == tensor.end - tensor.begin) return;
    fail(FRT_ERR_FORMAT, "'" + name + "' " + shape_text(tensor.shape) + " does not lie at bytes " +
                             std::to_string(tensor.begin) + " to " + std::to_string(tensor.end) +
                             " of the " + std::to_string(data_bytes) + " that the file has");
  }

  // 0: unknown.
  static uint64_t dtype_bytes(std::string_view dtype) noexcept {
    constexpr std::pair<std::string_view, uint64_t> kTypes[] = {
        {"F64", 8},     {"F32", 4},     {"F16", 2}, {"BF16", 2}, {"I64", 8},
        {"U64", 8},     {"I32", 4},     {"U32", 4}, {"I16", 2},  {"U16", 2},
        {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
    for (const auto& [name, bytes] : kTypes) {
      if (name == dtype) return bytes;
    }
    return 0;
  }

  std::string path_;
  File file_;
  uint64_t data_ = 0;  // where the data begins, bytes
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace frt
