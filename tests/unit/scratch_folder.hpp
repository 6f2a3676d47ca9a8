// SPDX-License-Identifier: Apache-2.0
// scratch_folder.hpp - a folder of a test's own, gone with the object.
#pragma once

#include <doctest/doctest.h>

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace frt::test {

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::filesystem::path& in = std::filesystem::temp_directory_path()) {
    std::string name = (in / "frt-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~ScratchFolder() {
    std::error_code gone_already;
    std::filesystem::remove_all(path, gone_already);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace frt::test
