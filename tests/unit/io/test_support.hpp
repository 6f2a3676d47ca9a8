// SPDX-License-Identifier: Apache-2.0
// What the tests of sdk/io share: a scratch folder, and errors as values.
#pragma once

#include <doctest/doctest.h>

#include <frt/error.hpp>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

namespace frt::io::test {

// A folder of its own that is removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "frt-io-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
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

}  // namespace frt::io::test

// The error of `expression` starts with `status` (without FRT_ERR_) and contains every given part.
#define CHECK_FAILS(expression, status, ...)                                                \
  do {                                                                                      \
    const std::string found_error = ::frt::io::test::error_of([&] { (void)(expression); }); \
    INFO(found_error);                                                                      \
    CHECK(found_error.starts_with("FRT_ERR_" status ": "));                                 \
    for (const std::string& part : std::initializer_list<std::string>{__VA_ARGS__}) {       \
      INFO(part);                                                                           \
      CHECK(found_error.find(part) != std::string::npos);                                   \
    }                                                                                       \
  } while (false)
