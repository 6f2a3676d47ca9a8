// SPDX-License-Identifier: Apache-2.0
// What several of these tests need: a temporary folder, files, and the text of an error.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <frt/error.hpp>
#include <fstream>
#include <iterator>
#include <string>

namespace test {

inline const std::filesystem::path kPlugins = FRT_TEST_PLUGINS;
inline const std::filesystem::path kGoodModel = kPlugins / "good" / "good_model.so";

inline std::filesystem::path broken(const std::string& name) {
  return kPlugins / "broken" / (name + ".so");
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "frt-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  REQUIRE(stream.good());
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("'" << part << "' is not in:\n" << text);
  return found;
}

// Runs `body`, which must throw frt::Error, and returns the error.
template <class Body>
frt::Error error_of(Body&& body) {
  try {
    body();
  } catch (const frt::Error& error) {
    return error;
  }
  FAIL("no error was thrown");
  return frt::Error(FRT_OK, "");
}

}  // namespace test
