// SPDX-License-Identifier: Apache-2.0
// The rules of the architecture that a program can check: the red line around core, what plugin
// files may export and import, and the folders of the project. Each check has a test of its own
// that shows it failing.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "red_line.hpp"

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = FRT_SOURCE_DIR;

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char block[4096];
  while (std::fgets(block, sizeof(block), pipe)) text += block;
  CHECK(::pclose(pipe) == 0);
  return text;
}

// What is wrong with a plugin's file; empty: nothing.
std::vector<std::string> image_problems(const fs::path& path) {
  std::vector<std::string> problems;
  const std::string file = "'" + path.string() + "'";
  std::istringstream exports(output_of("nm -D --defined-only " + file));
  std::string line;
  std::set<std::string> names;
  while (std::getline(exports, line)) names.insert(line.substr(line.rfind(' ') + 1));
  if (names != std::set<std::string>{"frt_plugin_v1"}) {
    std::string all;
    for (const std::string& name : names) all += " " + name;
    problems.push_back("exports:" + all);
  }
  std::istringstream imports(output_of("nm -D -u " + file));
  while (std::getline(imports, line)) {
    if (line.find(" frt_") != std::string::npos) problems.push_back("imports" + line);
  }
  std::istringstream dynamic(output_of("readelf -dlW " + file));
  while (std::getline(dynamic, line)) {
    const bool path_line =
        line.find("(RPATH)") != std::string::npos || line.find("(RUNPATH)") != std::string::npos;
    if (path_line) {
      const std::size_t start = line.find('[') + 1;
      // An empty entry is one, too: it means the working directory.
      std::istringstream entries(line.substr(start, line.rfind(']') - start) + ":");
      for (std::string entry; std::getline(entries, entry, ':');) {
        if (!entry.starts_with("$ORIGIN")) problems.push_back("searches '" + entry + "'");
      }
    }
    if (line.find("GNU_STACK") != std::string::npos && line.find("RWE") != std::string::npos) {
      problems.push_back("has an executable stack");
    }
  }
  return problems;
}

}  // namespace

TEST_CASE("core and exec.h contain no word of policy, no device interface and no model") {
  for (const fs::path& root : {kRoot / "core", kRoot / "sdk" / "include" / "frt" / "exec.h"}) {
    REQUIRE(fs::exists(root));
    for (const red_line::Hit& hit : red_line::scan(root)) {
      FAIL_CHECK(hit.file.string()
                 << ":" << hit.line << ": '" << hit.word << "' belongs in a host or a role table");
    }
  }
}

TEST_CASE("the red line would be noticed, whatever the word and however it is written") {
  for (const char* planted : {"int session_count;",
                              "class SessionTable",
                              "kv_rows",
                              "the KV rows",
                              "LastKVRow",
                              "prefix cache",
                              "kCacheSize",
                              "CACHED",
                              "a schedule",
                              "Scheduler",
                              "deadline_ms",
                              "wire protocol",
                              "OpenAI",
                              "robot.toml",
                              "agents",
                              "Agent",
                              "cudaMalloc",
                              "CUDA",
                              "hipMalloc",
                              "HIP",
                              "level_zero",
                              "Level Zero",
                              "vulkan",
                              "OpenCL",
                              "Qwen3",
                              "pi05",
                              "Pi0.5",
                              "recap_cfg",
                              "gemma",
                              "llama.cpp",
                              "priority class",
                              "priority_class"}) {
    CAPTURE(planted);
    CHECK_FALSE(red_line::words_in(planted).empty());
  }
  std::string folder = (fs::temp_directory_path() / "frt-red-line-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  fs::create_directories(fs::path(folder) / "src");
  std::ofstream(fs::path(folder) / "src" / "a.cpp") << "int a;\nint next_session;\n";
  const auto hits = red_line::scan(folder);
  REQUIRE(hits.size() == 1);
  CHECK(hits[0].line == 2);
  CHECK(hits[0].word == "session");
  fs::remove_all(folder);
}

TEST_CASE("words that only look like it pass the red line") {
  for (const char* fine : {"ownership", "relationship", "priority of a stream", "recapture",
                           "recaptured", "reagent", "kvass", "a chip", "whip", "memo", "pi"}) {
    CAPTURE(fine);
    CHECK(red_line::words_in(fine).empty());
  }
}

TEST_CASE("every plugin exports its descriptor only, imports nothing of the host, and is tidy") {
  int plugins = 0;
  if (fs::exists(FRT_PLUGIN_DIR)) {
    for (const auto& entry : fs::directory_iterator(FRT_PLUGIN_DIR)) {
      if (entry.path().extension() != ".so") continue;
      ++plugins;
      for (const std::string& problem : image_problems(entry.path())) {
        FAIL_CHECK(entry.path().string() << ": " << problem);
      }
    }
  }
  CHECK(plugins >= FRT_TEST_MINIMUM_PLUGINS);
}

TEST_CASE("a plugin that is built carelessly is noticed") {
  std::string all;
  for (const std::string& problem : image_problems(FRT_TEST_CARELESS)) all += problem + "\n";
  CAPTURE(all);
  CHECK(all.find("exports: frt_plugin_v1 helper") != std::string::npos);
  CHECK(all.find("frt_core_exec") != std::string::npos);
  CHECK(all.find("searches '/opt/libraries'") != std::string::npos);
  CHECK(all.find("searches ''") != std::string::npos);
  CHECK(all.find("executable stack") != std::string::npos);
}

TEST_CASE("the project has exactly its folders, each with a page that explains it") {
  const std::set<std::string> expected = {"cmake",   "core", "hosts", "models",
                                          "plugins", "sdk",  "tests", "tools"};
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kRoot)) {
    const std::string name = entry.path().filename().string();
    // Hidden folders and build trees are not part of the project.
    if (entry.is_directory() && name[0] != '.' && !name.starts_with("build")) found.insert(name);
  }
  found.erase("shared");  // reference data that some checkouts carry
  CHECK(found == expected);
  for (const std::string& name : expected) {
    CAPTURE(name);
    CHECK(fs::exists(kRoot / name / "README.md"));
  }
}
