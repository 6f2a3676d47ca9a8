// SPDX-License-Identifier: Apache-2.0
// access_log.hpp - what was asked and what became of it: one JSON object a line, appended to a
// file. Records of one request share its trace id. Prompts and answers are not among them.
#pragma once

#include <frt/io/file.hpp>

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace frt::host {

class AccessLog {
 public:
  // An empty path: nothing is written. The file is made for its owner alone, or appended to. Throws
  // FRT_ERR_IO.  [setup]
  explicit AccessLog(const std::filesystem::path& path);

  bool open() const noexcept { return file_.get() >= 0; }
  // Adds "time" (UTC, milliseconds) and "event" in front. What cannot be written is lost.  [any]
  void write(const char* event, const nlohmann::ordered_json& record) noexcept;

 private:
  std::mutex mutex_;
  io::Descriptor file_;
};

}  // namespace frt::host
