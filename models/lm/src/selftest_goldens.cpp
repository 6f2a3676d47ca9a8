// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/selftest_goldens.hpp>

#include <algorithm>
#include <cstring>
#include <frt/error.hpp>
#include <frt/models/linear_weight.hpp>
#include <frt/models/safetensors.hpp>

namespace frt::lm {
namespace {

namespace fs = std::filesystem;
using models::TensorView;

std::vector<fs::path> tensor_files(const fs::path& path) {
  if (!fs::exists(path)) {
    throw Error(FRT_ERR_NOT_FOUND, "goldens '" + path.string() + "': no such file or folder");
  }
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file() && entry.path().extension() == ".safetensors") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

Golden read_tensor(const TensorView& tensor) {
  Golden golden;
  golden.shape.assign(tensor.shape.begin(), tensor.shape.end());
  if (tensor.dtype == FRT_DTYPE_I32) {
    golden.ids.resize(tensor.elements());
    tensor.read(0, std::as_writable_bytes(std::span(golden.ids)));
  } else if (tensor.dtype == FRT_DTYPE_I64) {
    std::vector<std::int64_t> wide(tensor.elements());
    tensor.read(0, std::as_writable_bytes(std::span(wide)));
    golden.ids.assign(wide.begin(), wide.end());
  } else if (tensor.dtype == FRT_DTYPE_F32 || tensor.dtype == FRT_DTYPE_F64 ||
             tensor.dtype == FRT_DTYPE_BF16 || tensor.dtype == FRT_DTYPE_F16) {
    golden.values = models::to_f32(tensor);
  } else {
    throw Error(FRT_ERR_FORMAT,
                "golden tensor " + std::string(tensor.name) + " in " + std::string(tensor.file) +
                    ": expected a float type, i32 or i64, found " + dtype_name(tensor.dtype));
  }
  return golden;
}

bool is_case_ids(const TensorView& tensor) {
  const bool integer = tensor.dtype == FRT_DTYPE_I32 || tensor.dtype == FRT_DTYPE_I64;
  return integer && tensor.shape.size() == 1 && tensor.name.ends_with(".ids") &&
         tensor.name.find('.') == tensor.name.size() - 4;
}

}  // namespace

std::vector<GoldenCase> read_goldens(const fs::path& path) {
  std::vector<GoldenCase> cases;
  for (const fs::path& file : tensor_files(path)) {
    const auto opened = models::SafetensorsFile::open(file);
    const auto tensors = opened->tensors();
    for (const TensorView& ids : tensors) {
      if (!is_case_ids(ids)) continue;
      GoldenCase found;
      found.name = ids.name.substr(0, ids.name.size() - 4);
      found.file = file.string();
      for (const TensorView& tensor : tensors) {
        if (!tensor.name.starts_with(found.name + ".")) continue;
        found.tensors.emplace(tensor.name.substr(found.name.size() + 1), read_tensor(tensor));
      }
      if (found.prompt().empty()) {
        throw Error(FRT_ERR_FORMAT, "golden tensor " + std::string(ids.name) + " in " +
                                        file.string() + " is empty, expected a prompt");
      }
      cases.push_back(std::move(found));
    }
  }
  if (cases.empty()) {
    throw Error(FRT_ERR_NOT_FOUND, "'" + path.string() +
                                       "' holds no goldens: expected safetensors files with "
                                       "tensors like t150.ids and t150.logits");
  }
  return cases;
}

std::optional<fs::path> find_prompts(const fs::path& path) {
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  const fs::path file = folder / "prompts.json";
  if (fs::exists(file)) return file;
  return std::nullopt;
}

}  // namespace frt::lm
