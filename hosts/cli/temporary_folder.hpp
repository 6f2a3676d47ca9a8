// SPDX-License-Identifier: Apache-2.0
// temporary_folder.hpp - a folder of this process alone, which goes with it.
#pragma once

#include <filesystem>
#include <string>

namespace frt::host {

class TemporaryFolder {
 public:
  // In `parent`; empty: in the system's folder for such ($TMPDIR). FRT_ERR_IO.
  explicit TemporaryFolder(const std::string& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace frt::host
