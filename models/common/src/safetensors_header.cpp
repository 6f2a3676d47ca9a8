// SPDX-License-Identifier: Apache-2.0
// The format (github.com/huggingface/safetensors):
//
//   8 bytes   N, length of the header, little endian
//   N bytes   JSON object, starts with '{', may be padded with spaces at the end:
//               "tensor name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...
//               "__metadata__": {"key": "value", ...}           strings only, optional
//   the rest  data; offsets count from here
//
// What must hold, and is checked here: N is at most 100 MB and lies inside the file; no key stands
// twice; dtype is known; begin <= end; end - begin is the product of the shape times the element
// size, without overflow; the tensors, sorted by begin, cover the data without overlap, hole or
// rest.
#include "safetensors_header.hpp"

#include <frt/error.hpp>
#include <frt/io/json_sax.hpp>
#include <frt/io/utf8.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "text.hpp"

namespace frt::models {
namespace {

constexpr std::uint64_t kLongestHeader = 100'000'000;
// Enough for some 500,000 tensors.
constexpr io::JsonLimits kLimits{
    .bytes = kLongestHeader, .depth = 3, .values = std::size_t{1} << 22};
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kLfsMark = "version https://git-lfs";

struct DtypeName {
  std::string_view name;
  frt_dtype dtype;
};
constexpr DtypeName kDtypes[] = {
    {"BOOL", FRT_DTYPE_BOOL}, {"U8", FRT_DTYPE_U8},           {"I8", FRT_DTYPE_I8},
    {"I16", FRT_DTYPE_I16},   {"U16", FRT_DTYPE_U16},         {"I32", FRT_DTYPE_I32},
    {"U32", FRT_DTYPE_U32},   {"I64", FRT_DTYPE_I64},         {"U64", FRT_DTYPE_U64},
    {"F16", FRT_DTYPE_F16},   {"BF16", FRT_DTYPE_BF16},       {"F32", FRT_DTYPE_F32},
    {"F64", FRT_DTYPE_F64},   {"F8_E4M3", FRT_DTYPE_F8_E4M3}, {"F8_E5M2", FRT_DTYPE_F8_E5M2}};

// The length at the start of a file.
std::uint64_t header_length(std::span<const std::byte> head) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(head[i]);
  return length;
}

// Reads the JSON of the header. Where it stands is the pair (depth, what it is inside of).
class HeaderReader : public io::SaxHandler {
 public:
  HeaderReader(std::string_view name, SafetensorsHeader* header)
      : io::SaxHandler(name, kLimits), header_(header) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(std::int64_t) { return unexpected("a negative number"); }
  bool number_float(double, const std::string& digits) {
    return unexpected("the number " + digits);
  }
  bool binary(io::Json::binary_t&) { return false; }  // JSON text has none

  bool number_unsigned(std::uint64_t value) {
    count();
    if (depth() != 3) return unexpected("a number");
    (field_ == Field::kShape ? current().shape : offsets_).push_back(value);
    return true;
  }

  bool string(std::string& value) {
    count();
    if (inside_ == Inside::kStrings) {
      header_->metadata.emplace_back(std::move(key_), std::move(value));
      return true;
    }
    if (depth() != 2 || field_ != Field::kDtype) return unexpected("a string");
    current().dtype = safetensors_dtype(value);
    if (current().dtype == FRT_DTYPE_NONE) {
      fail("has the unknown dtype " + io::quote(value), FRT_ERR_UNSUPPORTED);
    }
    return true;
  }

  bool start_object(std::size_t) {
    enter();
    if (depth() == 1) return true;
    if (depth() == 3) return unexpected("an object");
    if (key_ == kMetadata) {
      if (has_metadata_) broken("the key '__metadata__' stands twice");
      has_metadata_ = true;
      inside_ = Inside::kStrings;
      return true;
    }
    inside_ = Inside::kTensor;
    header_->entries.emplace_back().name = std::move(key_);
    seen_ = 0;
    offsets_.clear();
    return true;
  }

  bool key(std::string& name) {
    if (inside_ != Inside::kTensor) {
      key_ = std::move(name);
      return true;
    }
    if (name == "dtype") {
      field_ = Field::kDtype;
    } else if (name == "shape") {
      field_ = Field::kShape;
    } else if (name == "data_offsets") {
      field_ = Field::kOffsets;
    } else {
      fail("has the unknown key " + io::quote(name) + " (expected dtype, shape, data_offsets)");
    }
    const unsigned bit = 1u << static_cast<unsigned>(field_);
    if (seen_ & bit) fail("has the key " + io::quote(name) + " twice");
    seen_ |= bit;
    return true;
  }

  bool end_object() {
    leave();
    if (inside_ == Inside::kTensor) {
      for (const auto& [field, name] : {std::pair{Field::kDtype, "dtype"},
                                        {Field::kShape, "shape"},
                                        {Field::kOffsets, "data_offsets"}}) {
        if (!(seen_ & 1u << static_cast<unsigned>(field))) {
          fail(std::string("lacks the key '") + name + "'");
        }
      }
      if (offsets_.size() != 2) {
        fail("has " + std::to_string(offsets_.size()) + " data_offsets, expected 2");
      }
      current().begin = offsets_[0];
      current().end = offsets_[1];
    }
    inside_ = Inside::kRoot;
    return true;
  }

  bool start_array(std::size_t) {
    if (depth() != 2 || inside_ != Inside::kTensor || field_ == Field::kDtype) {
      return unexpected("an array");
    }
    enter();
    return true;
  }

  bool end_array() {
    leave();
    return true;
  }

 private:
  enum class Inside { kRoot, kStrings, kTensor };
  enum class Field { kDtype, kShape, kOffsets };

  HeaderEntry& current() { return header_->entries.back(); }

  [[noreturn]] void broken(const std::string& message) const {
    throw Error(FRT_ERR_FORMAT, std::string(name()) + ": header: " + message);
  }

  [[noreturn]] void fail(const std::string& message, frt_status status = FRT_ERR_FORMAT) {
    throw Error(status,
                std::string(name()) + ": tensor " + io::quote(current().name) + " " + message);
  }

  bool unexpected(const std::string& what) {
    if (inside_ == Inside::kTensor) fail("has " + what + " where it does not belong");
    if (inside_ == Inside::kStrings) {
      broken(what + " in '__metadata__' at " + io::quote(key_) + ", which holds strings only");
    }
    if (depth() == 0) broken("it is " + what + ", expected an object");
    broken(what + " at " + io::quote(key_) + ", expected an object");
  }

  SafetensorsHeader* header_;
  Inside inside_ = Inside::kRoot;
  Field field_ = Field::kDtype;
  unsigned seen_ = 0;  // one bit per Field
  bool has_metadata_ = false;
  std::string key_;
  std::vector<std::uint64_t> offsets_;
};

[[noreturn]] void reject(std::string_view file, const std::string& message) {
  throw Error(FRT_ERR_FORMAT, std::string(file) + ": " + message);
}

void check_unique(const SafetensorsHeader& header, std::string_view file) {
  std::vector<std::string_view> names;
  for (const HeaderEntry& entry : header.entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    reject(file, "tensor " + io::quote(*twice) + " stands twice in the header");
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : header.metadata) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  const auto key = std::adjacent_find(keys.begin(), keys.end());
  if (key != keys.end()) reject(file, "the metadata key " + io::quote(*key) + " stands twice");
}

// Size of each tensor against its shape, and the tensors against the `data_bytes` there are.
void check_layout(const SafetensorsHeader& header, std::uint64_t data_bytes,
                  std::string_view file) {
  for (const HeaderEntry& entry : header.entries) {
    const std::string who = "tensor " + io::quote(entry.name);
    const std::string offsets =
        "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
    if (entry.begin > entry.end) reject(file, who + " has the data_offsets " + offsets);
    if (entry.end > data_bytes) {
      reject(file, who + " has the data_offsets " + offsets + ", but the file has only " +
                       bytes_text(data_bytes) + " of data: it is cut short or its header is wrong");
    }
    std::uint64_t bytes = 0;
    const std::string what =
        std::string(safetensors_dtype_name(entry.dtype)) + " " + shape_text(entry.shape);
    if (!tensor_bytes(entry.dtype, entry.shape, &bytes)) {
      reject(file, who + ": the size of " + what + " overflows");
    }
    if (bytes != entry.end - entry.begin) {
      reject(file, who + ": " + what + " needs " + bytes_text(bytes) + ", its data_offsets " +
                       offsets + " hold " + std::to_string(entry.end - entry.begin));
    }
  }
  std::vector<std::size_t> order(header.entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const HeaderEntry &x = header.entries[a], &y = header.entries[b];
    return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
  });
  std::uint64_t covered = 0;
  std::string_view previous;
  for (const std::size_t i : order) {
    const HeaderEntry& entry = header.entries[i];
    if (entry.begin < covered) {
      reject(file, "tensor " + io::quote(entry.name) + " starts at byte " +
                       std::to_string(entry.begin) + " of the data and overlaps tensor " +
                       io::quote(previous) + ", which ends at " + std::to_string(covered));
    }
    if (entry.begin > covered) {
      reject(file, "no tensor covers the data from byte " + std::to_string(covered) + " to " +
                       std::to_string(entry.begin) + ", before tensor " + io::quote(entry.name));
    }
    covered = entry.end;
    previous = entry.name;
  }
  if (covered != data_bytes) {
    reject(file, "its tensors cover " + bytes_text(covered) + " of data, but the file has " +
                     std::to_string(data_bytes));
  }
}

}  // namespace

std::string_view safetensors_dtype_name(frt_dtype dtype) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "?";
}

frt_dtype safetensors_dtype(std::string_view name) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  return FRT_DTYPE_NONE;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i == 8 && shape.size() > 9)
      return text + ", ... " + std::to_string(shape.size()) + " axes]";
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

bool tensor_bytes(frt_dtype dtype, std::span<const std::uint64_t> shape, std::uint64_t* bytes) {
  *bytes = dtype_bits(dtype) / 8;
  bool fits = true, empty = false;
  for (const std::uint64_t extent : shape) {
    empty |= extent == 0;
    fits &= !__builtin_mul_overflow(*bytes, extent, bytes);
  }
  if (empty) *bytes = 0;
  return fits || empty;
}

std::uint64_t safetensors_head_bytes(std::span<const std::byte> begin, std::uint64_t file_bytes) {
  const std::uint64_t length = begin.size() < 8 ? 0 : header_length(begin);
  // What cannot be a header is looked at no further than its refusal needs.
  return std::min(file_bytes, 8 + (length > kLongestHeader ? kLfsMark.size() : length));
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head,
                                           std::uint64_t file_bytes, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(kLfsMark)) {
    reject(name, "is a Git LFS pointer, not the weights: fetch them with 'git lfs pull'");
  }
  if (file_bytes < 8) {
    reject(name, "has " + bytes_text(file_bytes) + ", a safetensors file has at least 8");
  }
  const std::uint64_t length = header_length(head);
  if (length > kLongestHeader) {
    reject(name, "claims a header of " + bytes_text(length) + ", at most " +
                     std::to_string(kLongestHeader) + " are allowed: not a safetensors file?");
  }
  if (length > file_bytes - 8) {
    reject(name, "claims a header of " + bytes_text(length) + ", but only " +
                     std::to_string(file_bytes - 8) + " follow: it is cut short");
  }
  const std::string_view json = text.substr(8, length);
  if (!json.starts_with('{')) reject(name, "its header does not start with '{'");
  SafetensorsHeader header;
  header.data_start = 8 + length;
  HeaderReader reader(name, &header);
  io::run_sax(json, reader);
  check_unique(header, name);
  check_layout(header, file_bytes - header.data_start, name);
  return header;
}

}  // namespace frt::models
