// SPDX-License-Identifier: Apache-2.0
#include "red_line.hpp"

#include <cctype>
#include <fstream>

namespace red_line {

namespace {

bool is_alpha(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}
bool is_alnum(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}
bool is_upper(char c) {
  return std::isupper(static_cast<unsigned char>(c)) != 0;
}
char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Letters and digits only, so that level_zero, level-zero and LevelZero are one.
std::string squeezed(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (is_alnum(c)) result += lower(c);
  }
  return result;
}

// The parts of identifiers: "hipMalloc_KV" gives hip, malloc, kv.
std::vector<std::string> parts(std::string_view line) {
  std::vector<std::string> result(1);
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool hump = i > 0 && is_upper(c) && is_alpha(line[i - 1]) && !is_upper(line[i - 1]);
    const bool last_of_acronym = i > 0 && i + 1 < line.size() && is_upper(c) &&
                                 is_upper(line[i - 1]) && is_alpha(line[i + 1]) &&
                                 !is_upper(line[i + 1]);
    if (hump || last_of_acronym || !is_alpha(c)) result.emplace_back();
    if (is_alpha(c)) result.back() += lower(c);
  }
  return result;
}

// Names of products, which no rule about includes would notice. What core may know otherwise, its
// dependencies hold (layers.hpp): "cache" and "page" are words like others.
constexpr const char* kAnywhere[] = {"openai", "cuda",  "vulkan", "opencl",   "qwen",
                                     "pi05",   "gemma", "llama",  "levelzero"};
constexpr const char* kAlone[] = {"hip", "recap"};

}  // namespace

std::vector<std::string> words_in(std::string_view line) {
  std::vector<std::string> found;
  const std::string all = squeezed(line);
  for (const char* word : kAnywhere) {
    if (all.find(word) != std::string::npos) found.emplace_back(word);
  }
  for (const std::string& part : parts(line)) {
    for (const char* word : kAlone) {
      if (part == word) found.emplace_back(word);
    }
  }
  return found;
}

std::vector<Hit> scan(const std::filesystem::path& root) {
  std::vector<Hit> hits;
  const auto scan_file = [&](const std::filesystem::path& path) {
    std::ifstream stream(path);
    std::string line;
    for (std::size_t number = 1; std::getline(stream, line); ++number) {
      for (const std::string& word : words_in(line)) hits.push_back({path, number, word});
    }
  };
  if (std::filesystem::is_regular_file(root)) {
    scan_file(root);
    return hits;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.is_regular_file() && entry.path().extension() != ".md") scan_file(entry.path());
  }
  return hits;
}

}  // namespace red_line
