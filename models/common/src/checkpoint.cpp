// SPDX-License-Identifier: Apache-2.0
// Which files make up a checkpoint, the sorted list of all their tensors, and their digests.
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>
#include <frt/io/utf8.hpp>
#include <frt/models/json.hpp>
#include <frt/models/safetensors.hpp>

#include <algorithm>
#include <map>
#include <thread>

#include "tasks.hpp"
#include "text.hpp"

namespace frt::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kSidecar = "mtp.safetensors";

// A shard lies beside its index: anything else could reach any file of the machine.
void check_shard_name(const std::string& shard, const std::string& index) {
  if (shard.empty() || shard == "." || shard == ".." ||
      shard.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
    throw Error(FRT_ERR_FORMAT,
                index + ": " + io::quote(shard) + " is no name of a file in the same folder");
  }
}

// tensor name -> file name, as the index has it.
std::vector<std::pair<std::string, std::string>> read_index(const fs::path& path) {
  const Json index = io::read_json_file(path, {.bytes = std::size_t{256} << 20, .depth = 16});
  const std::string name = path.string();
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    throw Error(FRT_ERR_FORMAT, name + ": has no object 'weight_map'");
  }
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [tensor, file] : map->get_ref<const Json::object_t&>()) {
    if (!file.is_string()) {
      throw Error(FRT_ERR_FORMAT,
                  name + ": the file of tensor " + io::quote(tensor) + " is no string");
    }
    check_shard_name(file.get_ref<const std::string&>(), name);
    entries.emplace_back(tensor, file.get<std::string>());
  }
  if (entries.empty()) throw Error(FRT_ERR_FORMAT, name + ": its 'weight_map' is empty");
  return entries;
}

}  // namespace

struct Checkpoint::Index {
  std::vector<TensorView> tensors;  // sorted by name
  std::uint64_t bytes = 0;
};

Checkpoint Checkpoint::open(const fs::path& path) {
  Checkpoint result;
  result.path_ = path.string();
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(FRT_ERR_NOT_FOUND, result.path_ + ": no such checkpoint file or folder");
  }
  std::vector<std::pair<std::string, std::string>> index;  // tensor, file name
  if (status.type() == fs::file_type::directory) {
    std::vector<std::string> names;
    if (io::is_there(path / kIndex)) {
      index = read_index(path / kIndex);
      for (const auto& [tensor, file] : index) names.push_back(file);
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
      for (const std::string& name : names) {
        if (io::is_there(path / name)) continue;
        throw Error(FRT_ERR_NOT_FOUND, (path / name).string() + ": no such file, but " +
                                           std::string(kIndex) + " names it");
      }
    } else if (io::is_there(path / "model.safetensors")) {
      names.emplace_back("model.safetensors");
    } else {
      for (const auto& entry : fs::directory_iterator(path, error)) {
        const fs::path& file = entry.path();
        if (file.extension() == ".safetensors") names.push_back(file.filename().string());
      }
      if (error) throw Error(FRT_ERR_IO, result.path_ + ": cannot be listed: " + error.message());
      std::sort(names.begin(), names.end());
    }
    if (names.empty()) {
      throw Error(FRT_ERR_NOT_FOUND, result.path_ + ": has no model.safetensors, no " +
                                         std::string(kIndex) + " and no other *.safetensors");
    }
    if (io::is_there(path / kSidecar) &&
        std::find(names.begin(), names.end(), kSidecar) == names.end()) {
      names.emplace_back(kSidecar);
    }
    for (const std::string& name : names) {
      result.files_.push_back(SafetensorsFile::open(path / name));
    }
  } else {
    result.files_.push_back(SafetensorsFile::open(path));
  }

  auto built = std::make_shared<Index>();
  for (const auto& file : result.files_) {
    built->tensors.insert(built->tensors.end(), file->tensors().begin(), file->tensors().end());
  }
  auto& tensors = built->tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    built->bytes += tensors[i].bytes;
    if (i > 0 && tensors[i].name == tensors[i - 1].name) {
      throw Error(FRT_ERR_FORMAT, "tensor " + io::quote(tensors[i].name) +
                                      " stands in two files: " + std::string(tensors[i - 1].file) +
                                      " and " + std::string(tensors[i].file));
    }
  }
  result.index_ = std::move(built);
  for (const auto& [tensor, file] : index) {
    const TensorView* found = result.find(tensor);
    if (found && found->file == (path / file).string()) continue;
    throw Error(FRT_ERR_FORMAT, (path / kIndex).string() + ": says that tensor " +
                                    io::quote(tensor) + " is in " + file + ", but it is " +
                                    (found ? "in " + std::string(found->file) : "in no file"));
  }
  return result;
}

std::span<const TensorView> Checkpoint::tensors() const {
  return index_->tensors;
}
std::uint64_t Checkpoint::bytes() const {
  return index_->bytes;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto& tensors = index_->tensors;
  const auto at = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorView& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

const TensorView& Checkpoint::get(std::string_view name) const {
  if (const TensorView* tensor = find(name)) return *tensor;
  std::string text = path_ + ": has no tensor " + io::quote(name);
  if (const std::string near = closest(name); !near.empty()) {
    text += "; the closest name is " + io::quote(near);
  }
  throw Error(FRT_ERR_NOT_FOUND, text);
}

const TensorView& Checkpoint::require(std::string_view name,
                                      std::span<const std::uint64_t> shape) const {
  const TensorView& tensor = get(name);
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
    throw Error(FRT_ERR_MISMATCH, std::string(tensor.file) + ": tensor " + io::quote(name) +
                                      " has shape " + shape_text(tensor.shape) + ", expected " +
                                      shape_text(shape));
  }
  return tensor;
}

const TensorView& Checkpoint::require(std::string_view name,
                                      std::initializer_list<std::uint64_t> shape) const {
  return require(name, std::span<const std::uint64_t>(shape.begin(), shape.size()));
}

std::string Checkpoint::closest(std::string_view name) const {
  std::string_view best;
  std::size_t nearest = name.size() / 3 + 1;  // further away is no help
  for (const TensorView& tensor : index_->tensors) {
    if (nearest == 0) break;
    const std::size_t distance = edit_distance(name, tensor.name, nearest - 1);
    if (distance >= nearest) continue;
    nearest = distance;
    best = tensor.name;
  }
  return std::string(best);
}

void Checkpoint::require_unchanged() const {
  for (const auto& file : files_) file->require_unchanged();
}

std::vector<std::pair<std::string, std::string>> Checkpoint::digests(unsigned threads) const {
  std::vector<std::pair<std::string, std::string>> result(files_.size());
  if (threads == 0) threads = std::thread::hardware_concurrency();
  for_each_task(files_.size(), threads, [&](std::size_t i) {
    result[i] = {fs::path(files_[i]->path()).filename().string(), files_[i]->sha256()};
  });
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace frt::models
