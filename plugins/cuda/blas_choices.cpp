// SPDX-License-Identifier: Apache-2.0
#include "blas_choices.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace frt::cuda {
namespace {

constexpr std::string_view kFirstLine = "frt cublaslt 1";

using Map = std::map<std::string, BlasChoices::Choice>;

// FNV-1a: finds damage, not malice; what a line says is checked by the library before it is used.
uint64_t checksum(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string line_of(const std::string& key, const BlasChoices::Choice& choice) {
  std::string line = key + ' ';
  for (const uint64_t word : choice.algorithm) line += hex(word);
  char time[32];
  std::snprintf(time, sizeof(time), " %.1f", choice.microseconds);
  line += time;
  return line + ' ' + hex(checksum(line));
}

bool parse_line(const std::string& line, Map& choices) {
  const auto end = line.rfind(' ');
  if (end == std::string::npos || line.substr(end + 1) != hex(checksum(line.substr(0, end)))) {
    return false;
  }
  std::istringstream words(line.substr(0, end));
  std::string key, algorithm;
  BlasChoices::Choice choice{};
  words >> key >> algorithm >> choice.microseconds;
  if (!words || algorithm.size() != 128) return false;
  for (std::size_t i = 0; i < choice.algorithm.size(); ++i) {
    choice.algorithm[i] = std::strtoull(algorithm.substr(16 * i, 16).c_str(), nullptr, 16);
  }
  choices.insert_or_assign(key, choice);
  return true;
}

// Adds what the file has; false where something in it is damaged.
bool read_file(const std::string& path, Map& choices) {
  std::ifstream file(path);
  if (!file) return true;
  std::string line;
  if (!std::getline(file, line) || line != kFirstLine) return false;
  bool sound = true;
  while (std::getline(file, line)) sound = parse_line(line, choices) && sound;
  return sound;
}

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') {
    return std::string(cache) + "/frt";
  }
  if (const char* home = std::getenv("HOME"); home && *home == '/') {
    return std::string(home) + "/.cache/frt";
  }
  return "";
}

std::string path_for(std::string_view device, std::size_t version) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  std::string name;
  for (const char c : device) {
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  }
  return folder + "/cublaslt-" + std::to_string(version) + "-" + name + ".txt";
}

}  // namespace

BlasChoices::BlasChoices(std::string_view device, std::size_t version, const Warn& warn)
    : BlasChoices(path_for(device, version), warn) {}

BlasChoices::BlasChoices(std::string path, const Warn& warn) : path_(std::move(path)) {
  if (!path_.empty() && !read_file(path_, choices_)) {
    warn(path_ + " is damaged; what is missing is timed again and the file replaced");
  }
}

const BlasChoices::Choice* BlasChoices::find(const std::string& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? nullptr : &found->second;
}

void BlasChoices::add(const std::string& key, const Choice& choice) {
  choices_.insert_or_assign(key, choice);
  if (path_.empty()) return;
  // What other processes have added since stays; what this one chose wins.
  Map all;
  read_file(path_, all);
  for (const auto& [known, value] : choices_) all.insert_or_assign(known, value);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const std::string temporary = path_ + "." + std::to_string(getpid());
  {
    std::ofstream file(temporary);
    file << kFirstLine << '\n';
    for (const auto& [known, value] : all) file << line_of(known, value) << '\n';
    if (!file.flush()) {
      std::remove(temporary.c_str());
      return;
    }
  }
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) std::remove(temporary.c_str());
}

}  // namespace frt::cuda
