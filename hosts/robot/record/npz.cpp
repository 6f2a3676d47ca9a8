// SPDX-License-Identifier: Apache-2.0
// A zip archive: local header and data of each member, then the central directory, then its end
// record. All members are "stored", so an array is found by one seek. The reader goes through the
// central directory, checks every offset and length against the file before it looks, and every
// member's CRC; it takes what numpy.savez writes (with zip64 fields, too, up to 4 GiB).
//
// A .npy member: "\x93NUMPY", version, header length, a Python dictionary, the data from a multiple
// of 64.
#include "robot/record/npz.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <frt/error.hpp>
#include <frt/io/file.hpp>

#include "robot/record/crc32.hpp"

namespace frt::host {
namespace {

struct Named {
  const char* name;
  frt_dtype dtype;
};
constexpr Named kDtypes[] = {{"|u1", FRT_DTYPE_U8},  {"|b1", FRT_DTYPE_BOOL},
                             {"<f4", FRT_DTYPE_F32}, {"<f8", FRT_DTYPE_F64},
                             {"<i4", FRT_DTYPE_I32}, {"<i8", FRT_DTYPE_I64}};

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::size_t kMostRank = 8;
constexpr uint64_t kMostBytes = 0xfffffff0;                   // of members; offsets have 32 bits
constexpr uint64_t kMostDirectoryBytes = uint64_t{16} << 20;  // 65,535 names
constexpr uint64_t kEndBytes = 22, kCentralBytes = 46, kLocalBytes = 30;

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::string npy_header(const NpyArray& array, const std::string& name) {
  const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Named& d) { return d.dtype == array.dtype; });
  if (known == std::end(kDtypes)) {
    throw Error(FRT_ERR_UNSUPPORTED, "array " + name + ": no type for a .npz file");
  }
  std::string text =
      "{'descr': '" + std::string(known->name) + "', 'fortran_order': False, 'shape': (";
  for (const uint64_t extent : array.shape) text += std::to_string(extent) + ",";
  text += "), }";
  std::string out("\x93NUMPY\x01\x00", 8);
  const std::size_t before = out.size() + 2;
  while ((before + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  put(out, text.size(), 2);
  return out + text;
}

// Little-endian numbers of a file, checked.
class View {
 public:
  View(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}
  uint64_t size() const { return bytes_.size(); }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(FRT_ERR_FORMAT, name_ + " is no intact .npz file: " + what);
  }
  std::string_view part(uint64_t at, uint64_t bytes, const char* what) const {
    if (at > bytes_.size() || bytes > bytes_.size() - at) fail(std::string(what) + " lies outside");
    return bytes_.substr(at, bytes);
  }
  uint64_t number(uint64_t at, int bytes, const char* what) const {
    uint64_t value = 0;
    const std::string_view found = part(at, static_cast<uint64_t>(bytes), what);
    for (int i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(found[std::size_t(i)]);
    return value;
  }

 private:
  std::string_view bytes_;
  const std::string& name_;
};

// The value of a key of the header's dictionary: the text after "'key':".
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::size_t at = header.find("'" + std::string(key) + "':");
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

NpyArray parse_npy(std::string_view bytes, const std::string& member, const View& file) {
  const auto fail = [&](const char* what) { file.fail(member + ": " + what); };
  if (bytes.size() < 12 || bytes.substr(0, 6) != "\x93NUMPY") fail("no array");
  const bool wide = bytes[6] >= 2;
  uint64_t length = 0;
  for (int i = wide ? 3 : 1; i >= 0; --i) {
    length = length << 8 | static_cast<uint8_t>(bytes[std::size_t(8 + i)]);
  }
  const uint64_t start = wide ? 12 : 10;
  if (length > bytes.size() - start) fail("its header lies outside");
  const std::string_view header = bytes.substr(start, length);
  NpyArray array;
  const std::string_view type = value_of(header, "descr");
  for (const Named& known : kDtypes) {
    if (type.starts_with("'" + std::string(known.name) + "'")) array.dtype = known.dtype;
  }
  if (array.dtype == FRT_DTYPE_NONE) {
    throw Error(FRT_ERR_UNSUPPORTED, member + ": a type that episodes do not have");
  }
  if (!value_of(header, "fortran_order").starts_with("False")) fail("not in C order");
  std::string_view shape = value_of(header, "shape");
  if (!shape.starts_with('(')) fail("no shape");
  shape.remove_prefix(1);
  uint64_t expected = dtype_bits(array.dtype) / 8;
  while (!shape.empty() && shape.front() != ')') {
    uint64_t extent = 0;
    std::size_t digits = 0;
    while (digits < shape.size() && digits < 12 && shape[digits] >= '0' && shape[digits] <= '9') {
      extent = extent * 10 + static_cast<uint64_t>(shape[digits++] - '0');
    }
    if (digits == 0 || array.shape.size() == kMostRank) fail("a shape that cannot be read");
    if (extent != 0 && expected > bytes.size() / extent) fail("a shape larger than its data");
    expected *= extent;
    array.shape.push_back(extent);
    shape.remove_prefix(digits);
    while (!shape.empty() && (shape.front() == ',' || shape.front() == ' ')) shape.remove_prefix(1);
  }
  const std::string_view data = bytes.substr(start + length);
  if (data.size() != expected) fail("data and shape do not agree");
  array.data = data;
  return array;
}

}  // namespace

uint64_t NpyArray::count() const noexcept {
  uint64_t count = 1;
  for (const uint64_t extent : shape) count *= extent;
  return count;
}

NpyArray npy_text(std::string_view text) {
  return npy_array<char>(FRT_DTYPE_U8, {text.size()}, text);
}

void write_npz(const std::filesystem::path& path, const NpzArrays& arrays) {
  std::string out, directory;
  for (const auto& [name, array] : arrays) {
    const std::string member = name + ".npy";
    const std::string header = npy_header(array, name);
    const uint64_t size = header.size() + array.data.size();
    if (out.size() + size > kMostBytes) {
      throw Error(FRT_ERR_OUT_OF_RANGE, path.string() + ": an episode file holds less than 4 GiB");
    }
    const uint32_t crc = crc32(array.data, crc32(header));
    std::string common;
    put(common, 20, 2);    // version 2.0
    put(common, 0, 2);     // flags
    put(common, 0, 2);     // stored
    put(common, 0, 2);     // time
    put(common, 0x21, 2);  // 1980-01-01
    put(common, crc, 4);
    put(common, size, 4);
    put(common, size, 4);
    put(common, member.size(), 2);
    put(common, 0, 2);
    put(directory, kCentral, 4);
    put(directory, 20, 2);
    directory += common;
    put(directory, 0, 2);  // comment, disk, attributes
    put(directory, 0, 2);
    put(directory, 0, 2);
    put(directory, 0, 4);
    put(directory, out.size(), 4);
    directory += member;
    put(out, kLocal, 4);
    out += common + member + header;
    out += array.data;
  }
  const uint64_t start = out.size();
  out += directory;
  put(out, kEnd, 4);
  put(out, 0, 4);
  put(out, arrays.size(), 2);
  put(out, arrays.size(), 2);
  put(out, directory.size(), 4);
  put(out, start, 4);
  put(out, 0, 2);

  io::write_file_atomically(path, out);
}

NpzArrays parse_npz(std::string_view bytes, const std::string& name) {
  const View file(bytes, name);
  if (file.size() < kEndBytes) file.fail("it is too short");
  uint64_t end = file.size() - kEndBytes;
  const uint64_t last = end > 65535 ? end - 65535 : 0;
  while (file.number(end, 4, "the end record") != kEnd) {
    if (end == last) file.fail("it has no end record (was it cut?)");
    --end;
  }
  const uint64_t count = file.number(end + 10, 2, "the end record");
  uint64_t at = file.number(end + 16, 4, "the end record");
  std::map<uint64_t, uint64_t> taken{{at, file.size()}};  // first byte -> end; by the directory
  NpzArrays arrays;
  for (uint64_t i = 0; i < count; ++i) {
    if (file.number(at, 4, "the directory") != kCentral) file.fail("the directory is damaged");
    const uint64_t method = file.number(at + 10, 2, "the directory");
    const uint32_t crc = static_cast<uint32_t>(file.number(at + 16, 4, "the directory"));
    const uint64_t size = file.number(at + 24, 4, "the directory");
    const uint64_t name_bytes = file.number(at + 28, 2, "the directory");
    const uint64_t skip =
        file.number(at + 30, 2, "the directory") + file.number(at + 32, 2, "the directory");
    const uint64_t local = file.number(at + 42, 4, "the directory");
    std::string member(file.part(at + kCentralBytes, name_bytes, "a name"));
    at += kCentralBytes + name_bytes + skip;
    if (method != 0) {
      throw Error(FRT_ERR_UNSUPPORTED, name + ": " + member + " is compressed; use numpy.savez");
    }
    if (file.number(local, 4, "a member") != kLocal) file.fail("a member is damaged");
    const uint64_t data = local + kLocalBytes + file.number(local + 26, 2, "a member") +
                          file.number(local + 28, 2, "a member");
    const std::string_view content = file.part(data, size, "a member's data");
    const auto behind = taken.lower_bound(local);
    const bool overlaps = (behind != taken.end() && behind->first < data + size) ||
                          (behind != taken.begin() && std::prev(behind)->second > local);
    if (overlaps) file.fail(member + " lies over another part");
    taken.emplace(local, data + size);
    if (crc32(content) != crc) file.fail(member + " has another checksum");
    if (member.ends_with(".npy")) member.resize(member.size() - 4);
    if (!arrays.emplace(member, parse_npy(content, member, file)).second) {
      file.fail(member + " is there twice");
    }
  }
  return arrays;
}

NpzArrays read_npz(const std::filesystem::path& path) {
  return parse_npz(io::read_file(path, "episode", kMostBytes + kMostDirectoryBytes), path.string());
}

}  // namespace frt::host
