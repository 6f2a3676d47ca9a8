// SPDX-License-Identifier: Apache-2.0
// trial_record.hpp - good verdicts of trials, kept between runs: a trial in a child process costs
// tens of milliseconds, and its answer is the same as long as the files are.
//
// The record is a cache and the files are the truth. A verdict counts only while everything that
// the trial mapped is as it was: the program, the plugin and the libraries that came with it, each
// by device, inode, size, time of modification and time of change. A bad verdict is not kept: its
// reason may be gone at the next start.
//
// Whatever is wrong with the record costs a trial and nothing else: a record that is damaged, too
// long, a link, or in a folder that others may write to counts as empty, and one that cannot be
// written is not written.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace frt::core {

class TrialRecord {
 public:
  // `folder` holds the record, a file of its own; empty: nothing is kept. `settled`: files that
  // changed less than this before their trial are not kept, for a further change might leave their
  // times as they are.
  explicit TrialRecord(std::filesystem::path folder,
                       std::chrono::nanoseconds settled = std::chrono::seconds(2));

  // True if a trial of this plugin went well and nothing has changed since.  [setup]
  bool knows(const std::filesystem::path& plugin) const;
  // Keeps a good verdict of a trial that began at `begin` and mapped `files` beside the program and
  // the plugin; the oldest verdict makes room.  [setup]
  void add(const std::filesystem::path& plugin, std::vector<std::string> files,
           std::chrono::system_clock::time_point begin) const noexcept;

  static constexpr std::size_t kMostVerdicts = 64;
  static constexpr std::size_t kMostFiles = 64;  // of one verdict

 private:
  std::filesystem::path file() const { return folder_ / "verdicts"; }

  std::filesystem::path folder_;
  std::chrono::nanoseconds settled_;
};

}  // namespace frt::core
