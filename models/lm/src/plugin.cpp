// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/plugin.hpp>

#include <filesystem>
#include <frt/error.hpp>
#include <string>

namespace frt::lm {

std::filesystem::path checkpoint_folder(const frt_model_params& params) {
  const std::string checkpoint = params.checkpoint ? params.checkpoint : "";
  if (std::filesystem::is_directory(checkpoint)) return checkpoint;
  throw Error(FRT_ERR_NOT_FOUND, "checkpoint '" + checkpoint +
                                     "': no such folder; give the folder that holds config.json");
}

}  // namespace frt::lm
