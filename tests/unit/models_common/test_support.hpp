// SPDX-License-Identifier: Apache-2.0
// What the tests of models/common share: a scratch folder, hand-made safetensors files, and errors
// as values.
#pragma once

#include <doctest/doctest.h>

#include <frt/error.hpp>
#include <frt/models/json.hpp>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace frt::models::test {

inline const std::filesystem::path kFixtures = FRT_FIXTURES_DIR;

// A folder of its own that is removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("frt_models_common_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// Length, header, data: a safetensors file with whatever header and data one likes.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> 8 * i & 0xFFu);
  return bytes.append(header).append(data);
}

// What `body` threw, as "FRT_ERR_NAME: message"; "nothing" if it did not.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(status_name(error.status())) + ": " + error.what();
  }
  return "nothing";
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace frt::models::test

// The error of `expression` starts with `status` (without FRT_ERR_) and contains every given part.
#define CHECK_FAILS(expression, status, ...)                                                    \
  do {                                                                                          \
    const std::string found_error = ::frt::models::test::error_of([&] { (void)(expression); }); \
    INFO(found_error);                                                                          \
    CHECK(found_error.starts_with("FRT_ERR_" status ": "));                                     \
    for (const std::string& part : std::initializer_list<std::string>{__VA_ARGS__}) {           \
      INFO(part);                                                                               \
      CHECK(::frt::models::test::contains(found_error, part));                                  \
    }                                                                                           \
  } while (false)
