// SPDX-License-Identifier: Apache-2.0
#include "cli/temporary_folder.hpp"

#include <cstdlib>
#include <frt/error.hpp>

namespace frt::host {

TemporaryFolder::TemporaryFolder(const std::string& parent) {
  const std::filesystem::path folder =
      parent.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(parent);
  std::string text = folder / "frt-XXXXXX";
  if (!mkdtemp(text.data())) {
    throw Error(FRT_ERR_IO, "cannot make a folder in " + folder.string() + "; choose another");
  }
  path_ = text;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace frt::host
