// SPDX-License-Identifier: Apache-2.0
// A number is claimed by making its .mcap file exclusively.
#include "robot/record/episode_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <frt/io/write_advice.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace frt::host {
namespace {

constexpr std::string_view kPrefix = "episode_";
constexpr std::size_t kMostDigits = 18;

// The number in the name of a record, of either kind.
std::optional<uint64_t> number_of(const std::filesystem::path& path) {
  const std::string extension = path.extension().string(), name = path.stem().string();
  if ((extension != ".npz" && extension != ".mcap") || !name.starts_with(kPrefix)) return {};
  const std::string_view digits = std::string_view(name).substr(kPrefix.size());
  uint64_t number = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (code != std::errc() || end != digits.data() + digits.size()) return {};
  return digits.size() <= kMostDigits ? std::optional(number) : std::nullopt;
}

}  // namespace

EpisodeFolder::EpisodeFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  try {
    std::filesystem::create_directories(folder_);
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (const auto number = number_of(entry.path())) next_ = std::max(next_, *number + 1);
    }
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(FRT_ERR_IO, "cannot make or read the folder " + folder_.string() + ": " +
                                error.code().message());
  }
}

std::filesystem::path EpisodeFolder::stem(uint64_t number) const {
  return folder_ / fmt::format("{}{:06}", kPrefix, number);
}

bool EpisodeFolder::claim(uint64_t number) const {
  const std::string path = stem(number).string() + ".mcap";
  const io::Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.get() >= 0) return true;
  if (errno == EEXIST) return false;
  throw Error(FRT_ERR_IO, "cannot write " + path + ": " + std::strerror(errno) +
                              std::string(io::write_advice(errno)));
}

uint64_t EpisodeFolder::write(const EpisodeRecord& record) {
  while (!claim(next_)) ++next_;
  const std::string path = stem(next_).string();
  try {
    record.write_mcap(path + ".mcap");
    record.write_npz(path + ".npz");
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path + ".mcap", ignored);
    throw;
  }
  return next_++;
}

std::string EpisodeFolder::path_to(const std::filesystem::path& file) const {
  return std::filesystem::weakly_canonical(file)
      .lexically_relative(std::filesystem::weakly_canonical(folder_))
      .string();
}

}  // namespace frt::host
