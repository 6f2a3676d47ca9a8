// SPDX-License-Identifier: Apache-2.0
// The log of requests: nothing is written by who asks for it, and a moved file is made anew.
#include "net/access_log.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <frt/error.hpp>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "../scratch_folder.hpp"

namespace frt::host {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

using Folder = frt::test::ScratchFolder;

std::vector<Json> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("each record is a line of JSON, in order, with its time and its event in front") {
  const Folder folder;
  {
    AccessLog log(folder.path / "log");
    for (int i = 0; i < 100; ++i) log.write("request", {{"number", i}, {"text", "a\nb\xff"}});
  }
  const std::vector<Json> lines = lines_of(folder.path / "log");
  REQUIRE(lines.size() == 100);
  for (int i = 0; i < 100; ++i) {
    CHECK(lines[static_cast<std::size_t>(i)].begin().key() == "time");
    CHECK(lines[static_cast<std::size_t>(i)]["event"] == "request");
    CHECK(lines[static_cast<std::size_t>(i)]["number"] == i);
  }
}

TEST_CASE("of records that the disk does not keep up with, each is written or counted") {
  const Folder folder;
  constexpr int kThreads = 4, kRecords = 2000;
  uint64_t dropped = 0;
  {
    AccessLog log(folder.path / "log", 8);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int record = 0; record < kRecords; ++record) log.write("request", {{"n", record}});
      });
    }
    for (std::thread& thread : threads) thread.join();
    dropped = log.dropped();
    CHECK(dropped > 0);
  }
  CHECK(lines_of(folder.path / "log").size() + dropped == kThreads * kRecords);
}

TEST_CASE("a log that was moved away goes on in a new file when it is told") {
  const Folder folder;
  const fs::path path = folder.path / "log", old = folder.path / "log.1";
  {
    AccessLog log(path);
    log.write("request", {{"n", 1}});
    while (fs::file_size(path) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    fs::rename(path, old);
    log.write("request", {{"n", 2}});
    while (lines_of(old).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    log.reopen();
    log.write("request", {{"n", 3}});
  }
  CHECK(lines_of(old).size() == 2);
  REQUIRE(lines_of(path).size() == 1);
  CHECK(lines_of(path)[0]["n"] == 3);
  // What cannot be opened changes nothing.
  AccessLog log(path);
  fs::remove(path);
  fs::create_directory(path);
  CHECK_THROWS_AS(log.reopen(), frt::Error);
}

}  // namespace frt::host
