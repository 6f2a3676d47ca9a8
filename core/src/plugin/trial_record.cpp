// SPDX-License-Identifier: Apache-2.0
// The record is a text: a header, then blocks, the oldest first.
//
//     frt-trials/1
//     plugin /usr/lib/frt/plugins/acme.so
//     search <LD_LIBRARY_PATH>
//     preload <LD_PRELOAD>
//     file <device> <inode> <size> <modified, ns> <changed, ns> /usr/bin/frt-host
//     file ... /usr/lib/frt/plugins/acme.so
//     file ... /usr/lib/libacme.so.1
//     end
//
// The two variables say what else the dynamic linker takes. A block counts if it is, byte for byte,
// the block that would be written now: so nothing of it is interpreted but the paths.
#include "plugin/trial_record.hpp"

#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/user_cache.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

namespace frt::core {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "frt-trials/1\n", kPlugin = "plugin ", kFile = "file ";
constexpr std::size_t kMostBlock = 16384;  // bytes
constexpr uint64_t kMostBytes = TrialRecord::kMostVerdicts * kMostBlock + 64;

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

std::string absolute_name(const fs::path& path) {
  std::error_code none;
  return fs::absolute(path, none).lexically_normal().string();
}

std::string program() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).string();
}

std::string first_line(const std::string& plugin) {
  return std::string(kPlugin) + plugin + "\n";
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The block of a verdict as the files are now; nothing if a file is not there or changed after
// `latest` (in ns since 1970), or if a line cannot hold a text.
std::optional<std::string> block(const std::string& plugin, const std::vector<std::string>& files,
                                 int64_t latest) {
  const std::string search = variable("LD_LIBRARY_PATH"), preload = variable("LD_PRELOAD");
  if ((plugin + search + preload).find('\n') != std::string::npos) return std::nullopt;
  std::string text = first_line(plugin) + "search " + search + "\npreload " + preload + "\n";
  for (const std::string& file : files) {
    struct stat info {};
    if (file.find('\n') != std::string::npos || ::stat(file.c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode)) {
      return std::nullopt;
    }
    const int64_t modified = nanoseconds(info.st_mtim), changed = nanoseconds(info.st_ctim);
    if (modified > latest || changed > latest) return std::nullopt;
    text += std::string(kFile) + std::to_string(info.st_dev) + " " + std::to_string(info.st_ino) +
            " " + std::to_string(info.st_size) + " " + std::to_string(modified) + " " +
            std::to_string(changed) + " " + file + "\n";
  }
  return text + "end\n";
}

// The path that a line "file <five numbers> <path>" ends in.
std::string path_of(std::string_view line) {
  std::size_t at = kFile.size();
  for (int number = 0; number < 5; ++number) {
    at = line.find(' ', at);
    if (at == std::string_view::npos) return {};
    ++at;
  }
  return std::string(line.substr(at));
}

std::vector<std::string> files_of(std::string_view text) {
  std::vector<std::string> files;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    if (text.starts_with(kFile)) files.push_back(path_of(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  return files;
}

// The blocks of a record, in order, without what is none.
std::vector<std::string> read_blocks(const fs::path& record) {
  const std::string text = io::read_optional_file(record, kMostBytes, io::Links::kRefuse);
  std::vector<std::string> blocks;
  if (!text.starts_with(kHeader) || text.back() != '\n') return blocks;
  std::size_t at = kHeader.size();
  while (at < text.size()) {
    const std::size_t next = text.find("\n" + std::string(kPlugin), at);
    const std::size_t end = next == std::string::npos ? text.size() : next + 1;
    if (text.compare(at, kPlugin.size(), kPlugin) == 0 && end - at <= kMostBlock) {
      blocks.push_back(text.substr(at, end - at));
    }
    at = end;
  }
  return blocks;
}

}  // namespace

TrialRecord::TrialRecord(fs::path folder, std::chrono::nanoseconds settled)
    : folder_(std::move(folder)), settled_(settled) {}

bool TrialRecord::knows(const fs::path& plugin) const {
  if (folder_.empty() || !io::prepare_private_folder(folder_)) return false;
  const std::string name = absolute_name(plugin);
  for (const std::string& kept : read_blocks(file())) {
    if (!kept.starts_with(first_line(name))) continue;
    const std::vector<std::string> files = files_of(kept);
    const auto has = [&](const std::string& one) { return std::ranges::count(files, one) > 0; };
    // A block without the two says nothing of them.
    if (files.size() > kMostFiles || !has(program()) || !has(name)) return false;
    return block(name, files, std::numeric_limits<int64_t>::max()) == kept;
  }
  return false;
}

void TrialRecord::add(const fs::path& plugin, std::vector<std::string> files,
                      std::chrono::system_clock::time_point begin) const noexcept {
  try {
    if (folder_.empty() || !io::prepare_private_folder(folder_)) return;
    const std::string name = absolute_name(plugin);
    for (const std::string& one : {name, program()}) {
      if (std::ranges::count(files, one) == 0) files.insert(files.begin(), one);
    }
    if (files.size() > kMostFiles) return;
    const auto latest =
        std::chrono::duration_cast<std::chrono::nanoseconds>(begin.time_since_epoch() - settled_);
    const std::optional<std::string> added = block(name, files, latest.count());
    if (!added || added->size() > kMostBlock) return;
    std::vector<std::string> blocks = read_blocks(file());
    std::erase_if(blocks,
                  [&](const std::string& kept) { return kept.starts_with(first_line(name)); });
    if (blocks.size() >= kMostVerdicts) {
      blocks.erase(blocks.begin(), blocks.end() - (kMostVerdicts - 1));
    }
    std::string text(kHeader);
    for (const std::string& kept : blocks) text += kept;
    text += *added;
    io::write_file_atomically(file(), text, io::Rights::kOwner);
  } catch (const std::exception&) {
    // The next start tries the plugin again.
    return;
  }
}

}  // namespace frt::core
