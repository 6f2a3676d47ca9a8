// SPDX-License-Identifier: Apache-2.0
// The header needs every size before the first byte of data, hence the two phases. Data is written
// with pwrite at its final place, so tensors may come in any order and none is buffered.
#include <unistd.h>

#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/retry.hpp>
#include <frt/io/utf8.hpp>
#include <frt/models/json.hpp>
#include <frt/models/safetensors_writer.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "safetensors_header.hpp"
#include "text.hpp"

namespace frt::models {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void io_error(const fs::path& path, const char* what) {
  throw Error(FRT_ERR_IO, path.string() + ": cannot be " + what + ": " + std::strerror(errno));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(fs::path path)
    : path_(std::move(path)), partial_(path_.string() + ".partial") {}

SafetensorsWriter::~SafetensorsWriter() {
  discard();
}

void SafetensorsWriter::discard() noexcept {
  if (file_ < 0) return;
  ::close(file_);
  file_ = -1;
  if (!finished_) ::unlink(partial_.c_str());
}

void SafetensorsWriter::set_metadata(std::string_view key, std::string_view value) {
  if (file_ >= 0 || finished_) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                path_.string() + ": metadata " + io::quote(key) + " comes after the first data");
  }
  for (const auto& [known, unused] : metadata_) {
    if (known == key) throw Error(FRT_ERR_EXISTS, "metadata " + io::quote(key) + " is set twice");
  }
  metadata_.emplace_back(key, value);
}

std::uint64_t SafetensorsWriter::declare(std::string_view name, frt_dtype dtype,
                                         std::span<const std::uint64_t> shape) {
  const std::string who = path_.string() + ": tensor " + io::quote(name);
  if (file_ >= 0 || finished_) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, who + " is declared after the first data");
  }
  if (safetensors_dtype_name(dtype) == "?") {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                who + ": safetensors files cannot hold " + dtype_name(dtype));
  }
  if (name.empty() || name == "__metadata__") {
    throw Error(FRT_ERR_INVALID_ARGUMENT, who + ": this is no name for a tensor");
  }
  Entry entry{.dtype = dtype, .shape = {shape.begin(), shape.end()}};
  if (!tensor_bytes(dtype, shape, &entry.bytes)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                who + ": the size of " + shape_text(shape) + " overflows");
  }
  const std::uint64_t bytes = entry.bytes;
  if (!entries_.emplace(name, std::move(entry)).second) {
    throw Error(FRT_ERR_EXISTS, who + " is declared twice");
  }
  return bytes;
}

std::uint64_t SafetensorsWriter::declare(std::string_view name, frt_dtype dtype,
                                         std::initializer_list<std::uint64_t> shape) {
  return declare(name, dtype, std::span<const std::uint64_t>(shape.begin(), shape.size()));
}

void SafetensorsWriter::begin() {
  std::vector<std::pair<const std::string, Entry>*> order;
  for (auto& entry : entries_) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_bits(a->second.dtype) > dtype_bits(b->second.dtype);
  });
  Json header = Json::object();
  if (!metadata_.empty()) {
    Json& strings = header["__metadata__"] = Json::object();
    for (const auto& [key, value] : metadata_) strings[key] = value;
  }
  auto& items = static_cast<Json::object_t::Container&>(header.get_ref<Json::object_t&>());
  for (auto* item : order) {
    Entry& entry = item->second;
    entry.offset = data_bytes_;
    data_bytes_ += entry.bytes;
    items.emplace_back(item->first,
                       Json{{"dtype", safetensors_dtype_name(entry.dtype)},
                            {"shape", entry.shape},
                            {"data_offsets", {entry.offset, entry.offset + entry.bytes}}});
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string start(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) start[i] = static_cast<char>(text.size() >> 8 * i & 0xFFu);
  start += text;
  data_start_ = start.size();
  file_ = io::create_file(partial_, "safetensors file").release();
  put(std::as_bytes(std::span(start)), 0);
}

void SafetensorsWriter::put(std::span<const std::byte> data, std::uint64_t at) {
  while (!data.empty()) {
    const ssize_t count = ::pwrite(file_, data.data(), data.size(), static_cast<off_t>(at));
    if (count < 0) {
      if (errno == EINTR) continue;
      io_error(partial_, "written");
    }
    data = data.subspan(static_cast<std::size_t>(count));
    at += static_cast<std::uint64_t>(count);
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data) {
  const auto found = entries_.find(name);
  const std::string who = path_.string() + ": tensor " + io::quote(name);
  if (found == entries_.end()) throw Error(FRT_ERR_INVALID_ARGUMENT, who + " is not declared");
  if (finished_) throw Error(FRT_ERR_INVALID_ARGUMENT, who + " comes after finish()");
  Entry& entry = found->second;
  if (data.size() > entry.bytes - entry.written) {
    throw Error(FRT_ERR_OUT_OF_RANGE, who + " has " + bytes_text(entry.bytes) + ", but " +
                                          std::to_string(entry.written + data.size()) +
                                          " are written");
  }
  if (file_ < 0) begin();
  put(data, data_start_ + entry.offset + entry.written);
  entry.written += data.size();
}

std::uint64_t SafetensorsWriter::finish() {
  if (finished_) throw Error(FRT_ERR_INVALID_ARGUMENT, path_.string() + " is finished already");
  for (const auto& [name, entry] : entries_) {
    if (entry.written == entry.bytes) continue;
    throw Error(FRT_ERR_INVALID_ARGUMENT, path_.string() + ": tensor " + io::quote(name) + " has " +
                                              bytes_text(entry.bytes) + ", but only " +
                                              std::to_string(entry.written) + " were written");
  }
  if (file_ < 0) begin();
  if (io::retried([&] { return ::fsync(file_); }) != 0) io_error(partial_, "synced");
  if (::rename(partial_.c_str(), path_.c_str()) != 0) io_error(partial_, "renamed");
  finished_ = true;
  discard();
  io::sync_folder(path_.parent_path());
  return data_start_ + data_bytes_;
}

void write_safetensors_index(const fs::path& path,
                             const std::map<std::string, std::string>& file_of_tensor,
                             std::uint64_t total_bytes) {
  Json map = Json::object();
  auto& items = static_cast<Json::object_t::Container&>(map.get_ref<Json::object_t&>());
  for (const auto& [tensor, file] : file_of_tensor) items.emplace_back(tensor, file);
  io::write_file_atomically(
      path,
      Json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(map)}}.dump(2) +
          "\n");
}

}  // namespace frt::models
