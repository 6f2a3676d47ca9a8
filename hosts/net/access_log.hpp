// SPDX-License-Identifier: Apache-2.0
// access_log.hpp - what was asked and what became of it: one JSON object a line, appended to a
// file. Records of one request share its id. Prompts and answers are not among them.
//
// A thread of its own writes, so no request waits for a disk. Records that it has not written yet
// are limited in number; those beyond are dropped and counted.
#pragma once

#include <frt/io/file.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace frt::host {

class AccessLog {
 public:
  static constexpr std::size_t kMostWaiting = 4096;

  // An empty path: nothing is written. The file is made for its owner alone, or appended to.
  // `most_waiting`: records that may wait for the disk. Throws FRT_ERR_IO.  [setup]
  explicit AccessLog(const std::filesystem::path& path, std::size_t most_waiting = kMostWaiting);
  ~AccessLog();  // writes what waits
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Something is written: there is a path.
  bool open() const noexcept { return !path_.empty(); }
  // Adds "time" (UTC, milliseconds) and "event" in front. Does not wait for the disk.  [any]
  void write(const char* event, nlohmann::ordered_json record) noexcept;
  // Goes on in the file that has the name now, for who has moved the old one away (logrotate).
  // Throws FRT_ERR_IO; then the old file is written on.  [any]
  void reopen();
  // Records that are lost: too many waited, or the file could not be written.  [any]
  uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct Record {
    std::chrono::system_clock::time_point time;
    const char* event;
    nlohmann::ordered_json members;
  };

  void run();
  void write_lines(std::vector<Record>& records) noexcept;
  bool write_line(const Record& record) noexcept;

  const std::filesystem::path path_;
  const std::size_t most_waiting_;
  std::atomic<uint64_t> dropped_{0};
  std::mutex file_mutex_;  // held while a line is written
  io::Descriptor file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Record> waiting_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace frt::host
