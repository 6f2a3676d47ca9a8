// SPDX-License-Identifier: Apache-2.0
// frt/lm/selftest_goldens.hpp - golden tensors from files. A case is a prompt; its tensors are
// named
// "<case>.<tensor>", e.g. "t150.logits". Values are f32 or i32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace frt::lm {

struct Golden {
  std::vector<std::int64_t> shape;
  std::vector<float> values;      // of float tensors
  std::vector<std::int32_t> ids;  // of integer tensors

  std::int64_t extent(std::size_t axis) const { return axis < shape.size() ? shape[axis] : 1; }
  std::size_t count() const { return values.size() + ids.size(); }
};

struct GoldenCase {
  std::string name;
  std::string file;
  std::map<std::string, Golden> tensors;  // by name after the case

  const Golden* find(const std::string& tensor) const {
    const auto found = tensors.find(tensor);
    return found == tensors.end() ? nullptr : &found->second;
  }
  const std::vector<std::int32_t>& prompt() const { return tensors.at("ids").ids; }
};

// Every case of a file, or of the golden files of a folder and its subfolders. A file holds goldens
// if it has a tensor "<case>.ids". FRT_ERR_NOT_FOUND if there is none; FRT_ERR_FORMAT for tensors
// of another type.  [setup]
std::vector<GoldenCase> read_goldens(const std::filesystem::path& path);

// The prompts.json beside goldens, of a folder or of the folder of a file.
std::optional<std::filesystem::path> find_prompts(const std::filesystem::path& path);

}  // namespace frt::lm
