// SPDX-License-Identifier: Apache-2.0
// The file of cuBLASLt's pinned algorithms: what is kept, what damage does. Runs without a device.
#include "blas_choices.hpp"
#include "blas_report.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

using frt::cuda::BlasChoices;

namespace {

int warnings = 0;

void count_warning(const std::string&) {
  ++warnings;
}

// A folder of the test's own; gone afterwards.
struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() /
             ("frt-blas-choices-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
    warnings = 0;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file() const { return (path / "deeper" / "choices.txt").string(); }
  std::filesystem::path path;
};

BlasChoices::Choice choice(uint64_t seed) {
  BlasChoices::Choice made{};
  for (uint64_t& word : made.algorithm) word = seed = seed * 6364136223846793005u + 1;
  made.microseconds = 12.5;
  return made;
}

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("what is added is found again, also by the next process") {
  const Folder folder;
  BlasChoices first(folder.file(), count_warning);
  CHECK(first.find("a:1x2x3") == nullptr);
  first.add("a:1x2x3", choice(1));
  first.add("b:1x2x3", choice(2));
  REQUIRE(first.find("a:1x2x3") != nullptr);
  const BlasChoices second(folder.file(), count_warning);
  REQUIRE(second.find("a:1x2x3") != nullptr);
  CHECK(second.find("a:1x2x3")->algorithm == choice(1).algorithm);
  CHECK(second.find("b:1x2x3")->algorithm == choice(2).algorithm);
  CHECK(second.find("b:1x2x3")->microseconds == doctest::Approx(12.5));
  CHECK(warnings == 0);
}

TEST_CASE("what another process added meanwhile stays") {
  const Folder folder;
  BlasChoices ours(folder.file(), count_warning), theirs(folder.file(), count_warning);
  theirs.add("theirs", choice(1));
  ours.add("ours", choice(2));
  const BlasChoices both(folder.file(), count_warning);
  CHECK(both.find("theirs") != nullptr);
  CHECK(both.find("ours") != nullptr);
}

TEST_CASE("a damaged line is left out with one warning, the others count") {
  const Folder folder;
  {
    BlasChoices good(folder.file(), count_warning);
    for (const char* key : {"a", "b", "c"}) good.add(key, choice(3));
  }
  std::string text = read(folder.file());
  text[text.find("\nb ") + 10] ^= 1;
  std::ofstream(folder.file()) << text;
  BlasChoices damaged(folder.file(), count_warning);
  CHECK(warnings == 1);
  CHECK(damaged.find("a") != nullptr);
  CHECK(damaged.find("b") == nullptr);
  CHECK(damaged.find("c") != nullptr);
  // The next choice mends the file.
  damaged.add("b", choice(4));
  const BlasChoices mended(folder.file(), count_warning);
  CHECK(warnings == 1);
  CHECK(mended.find("b")->algorithm == choice(4).algorithm);
}

TEST_CASE("a file of something else, cut off or empty, is an empty one with a warning") {
  const Folder folder;
  std::filesystem::create_directories(folder.path / "deeper");
  for (const std::string text : {"", "something else\n", "frt cublaslt 1\na 0123\n",
                                 "frt cublaslt 1\n\n", "frt cublaslt 1\nx"}) {
    CAPTURE(text);
    warnings = 0;
    std::ofstream(folder.file(), std::ios::trunc) << text;
    const BlasChoices none(folder.file(), count_warning);
    CHECK(none.find("a") == nullptr);
    CHECK(warnings == 1);
  }
}

TEST_CASE("where nothing can be written, choices last as long as the process") {
  const Folder folder;
  std::ofstream(folder.path / "deeper") << "a file where the folder should be";
  BlasChoices blocked(folder.file(), count_warning);
  blocked.add("a", choice(5));
  CHECK(blocked.find("a") != nullptr);
  BlasChoices nowhere("", count_warning);
  nowhere.add("a", choice(5));
  CHECK(nowhere.find("a") != nullptr);
  CHECK(warnings == 0);
}

TEST_CASE("what is kept is reported; without the library, what to install") {
  const Folder folder;
  setenv("XDG_CACHE_HOME", folder.path.c_str(), 1);
  setenv("FRT_CUBLASLT", (folder.path / "libnone.so").c_str(), 1);
  auto found = frt::cuda::report_blas("NVIDIA H200");
  REQUIRE(found.size() == 1);
  CHECK(found[0].fact.find("cuBLASLt is not installed, tried ") == 0);
  CHECK(found[0].fact.find("libnone.so") != std::string::npos);
  CHECK(!found[0].advice.empty());

  setenv("FRT_CUBLASLT", FRT_TEST_CUBLASLT, 1);  // a library with the right names
  found = frt::cuda::report_blas("NVIDIA H200");
  REQUIRE(found.size() == 1);
  CHECK_MESSAGE(found[0].fact.find("13.1.2, ") == 0, found[0].fact);
  CHECK(found[0].fact.find("no shape was timed on NVIDIA H200 yet") != std::string::npos);
  BlasChoices choices("NVIDIA H200", 130102, count_warning);
  BlasChoices::Choice one = choice(1);
  one.algorithm[0] = 0xFFFFFFFF00000042u;
  choices.add("bf16-bf16:1x2x3", one);
  choices.add("bf16-bf16:4x5x6", choice(2));
  found = frt::cuda::report_blas("NVIDIA H200");
  REQUIRE(found.size() == 3);
  CHECK(found[0].fact.find("2 shapes timed on NVIDIA H200, kept in " + choices.path()) !=
        std::string::npos);
  CHECK(found[1].subject == "cuBLASLt bf16-bf16:1x2x3");
  CHECK(found[1].fact == "algorithm 66, 12.5 us");
  CHECK(frt::cuda::report_blas("NVIDIA L4").size() == 1);
  std::ofstream(choices.path(), std::ios::app) << "damage\n";
  found = frt::cuda::report_blas("NVIDIA H200");
  REQUIRE(found.size() == 4);
  CHECK(!found[0].advice.empty());
}
