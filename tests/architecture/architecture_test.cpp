// SPDX-License-Identifier: Apache-2.0
// The rules of the architecture that a program can check: the red line around core, who may read
// bytes from outside, what plugin files may export and import, and the folders of the project. Each
// check has a test of its own that shows it failing.
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

#include "layers.hpp"
#include "outside_bytes.hpp"
#include "red_line.hpp"
#include "thread_tags.hpp"

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

TEST_CASE("core and exec.h name no device interface and no model") {
  for (const fs::path& root : {kRoot / "core", kRoot / "sdk" / "include" / "frt" / "exec.h"}) {
    REQUIRE(fs::exists(root));
    for (const red_line::Hit& hit : red_line::scan(root)) {
      FAIL_CHECK(hit.file.string()
                 << ":" << hit.line << ": '" << hit.word << "' belongs in a host or a role table");
    }
  }
}

TEST_CASE("a product would be noticed, however its name is written") {
  for (const char* planted :
       {"OpenAI", "cudaMalloc", "CUDA", "hipMalloc", "HIP", "level_zero", "Level Zero", "vulkan",
        "OpenCL", "Qwen3", "pi05", "Pi0.5", "recap_cfg", "gemma", "llama.cpp"}) {
    CAPTURE(planted);
    CHECK_FALSE(red_line::words_in(planted).empty());
  }
  std::string folder = (fs::temp_directory_path() / "frt-red-line-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  fs::create_directories(fs::path(folder) / "src");
  std::ofstream(fs::path(folder) / "src" / "a.cpp") << "int a;\nint next_qwen;\n";
  const auto hits = red_line::scan(folder);
  REQUIRE(hits.size() == 1);
  CHECK(hits[0].line == 2);
  CHECK(hits[0].word == "qwen");
  fs::remove_all(folder);
}

TEST_CASE("no source of core includes what stands above it, or what another library keeps") {
  for (const std::string& problem : layers::problems(kRoot / "core" / "src")) {
    FAIL_CHECK(problem << ": core's libraries stand on each other; see core/CMakeLists.txt");
  }
  std::set<std::string> listed;
  for (const layers::Layer& layer : layers::all()) {
    listed.insert(layer.folders.begin(), layer.folders.end());
  }
  for (const auto& entry : fs::directory_iterator(kRoot / "core" / "src")) {
    if (entry.is_directory()) CHECK(listed.count(entry.path().filename().string()) == 1);
  }
}

TEST_CASE("an include that goes upwards, or into what another library keeps, would be noticed") {
  using layers::wrong_include;
  CHECK(wrong_include(0, "#include \"capsule/state.hpp\"") == "capsule/state.hpp");
  CHECK(wrong_include(0, "  #include <frt/core/runtime.hpp>") == "frt/core/runtime.hpp");
  CHECK(wrong_include(0, "#include <frt/io/file.hpp>") == "frt/io/file.hpp");
  CHECK(wrong_include(0, "#include <nlohmann/json.hpp>") == "nlohmann/json.hpp");
  CHECK(wrong_include(1, "#include \"plugin/elf.hpp\"") == "plugin/elf.hpp");
  CHECK(wrong_include(1, "#include <frt/core/log.hpp>") == "frt/core/log.hpp");
  CHECK(wrong_include(1, "#include \"exec/objects.hpp\"") == "exec/objects.hpp");
  CHECK(wrong_include(1, "#include \"exec/functions.hpp\"") == "exec/functions.hpp");
  CHECK(wrong_include(2, "#include <exec/objects.hpp>") == "exec/objects.hpp");
  CHECK(wrong_include(2, "#include \"capsule/store.hpp\"") == "capsule/store.hpp");
  for (const char* fine : {"#include <vector>", "#include <frt/exec.hpp>", "#include <sys/stat.h>",
                           "#include \"exec/objects.hpp\"", "// #include \"plugin/elf.hpp\"", ""}) {
    CHECK(wrong_include(0, fine).empty());
  }
  for (const char* fine : {"#include <frt/core/exec_table.hpp>", "#include \"capsule/store.hpp\"",
                           "#include <frt/core/context_call.hpp>", "#include <openssl/evp.h>"}) {
    CHECK(wrong_include(1, fine).empty());
  }
}

TEST_CASE("a planted include of a private header of exec is found with its place") {
  char name[] = "/tmp/frt-layers-XXXXXX";
  const fs::path folder = ::mkdtemp(name);
  for (const layers::Layer& layer : layers::all()) {
    for (const std::string& inside : layer.folders) fs::create_directory(folder / inside);
  }
  std::ofstream(folder / "capsule" / "verbs.cpp") << "#include <frt/exec.hpp>\n"
                                                     "#include \"exec/objects.hpp\"\n";
  const std::vector<std::string> found = layers::problems(folder);
  CHECK(found == std::vector<std::string>{(folder / "capsule" / "verbs.cpp").string() +
                                          ":2: exec/objects.hpp"});
  fs::remove_all(folder);
}

TEST_CASE("the rooms of hosts stand on each other") {
  for (const std::string& problem : layers::host_problems(kRoot / "hosts")) {
    FAIL_CHECK(problem << ": the rooms of hosts stand on each other; see hosts/README.md");
  }
  std::set<std::string> listed = {"manifests"};  // no sources
  for (const layers::Room& room : layers::rooms()) listed.insert(room.name);
  for (const auto& entry : fs::directory_iterator(kRoot / "hosts")) {
    if (entry.is_directory()) CHECK(listed.count(entry.path().filename().string()) == 1);
  }
}

TEST_CASE("an include of a room above would be noticed") {
  const auto wrong = [](const char* name, const std::string& line) {
    for (const layers::Room& room : layers::rooms()) {
      if (room.name == name) return layers::wrong_host_include(room, line);
    }
    return std::string("no such room");
  };
  for (const char* room : {"runtime", "lm", "net", "http", "robot", "bench", "examples"}) {
    CHECK(wrong(room, "#include \"cli/app.hpp\"") == "cli/app.hpp");
    CHECK(wrong(room, "  #include \"cli/terminal/output.hpp\"") == "cli/terminal/output.hpp");
    CHECK(wrong(room, "#include <CLI/CLI.hpp>") == "CLI/CLI.hpp");
    CHECK(wrong(room, "#include <histedit.h>") == "histedit.h");
    CHECK(wrong(room, "// #include \"cli/app.hpp\"").empty());
  }
  for (const char* room : {"lm", "robot"}) {
    CHECK(wrong(room, "#include \"http/server.hpp\"") == "http/server.hpp");
    CHECK(wrong(room, "#include \"runtime/loaded_model.hpp\"") == "runtime/loaded_model.hpp");
  }
  CHECK(wrong("runtime", "#include \"examples/reach/world.hpp\"") == "examples/reach/world.hpp");
  CHECK(wrong("cli", "#include <CLI/CLI.hpp>").empty());
  CHECK(wrong("runtime", "#include \"http/server.hpp\"").empty());
  CHECK(wrong("lm", "#include \"lm/session.hpp\"").empty());
  CHECK(wrong("lm", "#include <frt/exec.hpp>").empty());
}

TEST_CASE("no command names an environment") {
  for (const char* room : {"cli/commands", "runtime"}) {
    for (const auto& file : fs::recursive_directory_iterator(kRoot / "hosts" / room)) {
      std::ifstream in(file.path());
      for (std::string line; std::getline(in, line);) {
        if (line.find("ReachWorld") != std::string::npos ||
            line.find("reach/") != std::string::npos)
          FAIL_CHECK(file.path().string() << ": environments are asked for by name");
      }
    }
  }
}

TEST_CASE("every function and callback of the ABI says from which threads it may be called") {
  for (const std::string& problem : thread_tags::problems(kRoot / "sdk" / "include" / "frt")) {
    FAIL_CHECK(
        problem << ": no thread tag ([setup], [driver], [hot], [object], [any]); see frt/base.h");
  }
}

TEST_CASE("a function without a thread tag of its own would be noticed") {
  using thread_tags::untagged;
  CHECK(untagged("typedef int (*sink)(void* user);\n") == std::vector<std::string>{"sink"});
  CHECK(untagged("/* For both.  [any] */\nint (*a)(void);\nint (*b)(void);\n") ==
        std::vector<std::string>{"b"});
  CHECK(untagged("int (*a)(void);\n/* [hot] */\nint (*b)(void);\n") ==
        std::vector<std::string>{"a"});
  CHECK(untagged("int (*a)(int x,\n         int y); /* [hot] */\n/* [any] */ int (*b)(void);\n")
            .empty());
  CHECK(untagged("/* As its call.  [as run] */\nint (*a)(void (*done)(void*), int n);\n").empty());
  CHECK(untagged("int member; /* (*no)(function) */\n").empty());
}

TEST_CASE("words that only look like a product's name are fine") {
  for (const char* fine : {"ownership", "relationship", "priority of a stream", "recapture",
                           "recaptured", "reagent", "kvass", "a chip", "whip", "memo", "pi"}) {
    CAPTURE(fine);
    CHECK(red_line::words_in(fine).empty());
  }
}

TEST_CASE("files and texts from outside are read by sdk/io alone, but for places with a reason") {
  std::set<std::pair<std::string, std::string>> used;
  for (const char* folder : {"core", "hosts", "models", "plugins", "sdk", "tools"}) {
    for (const outside_bytes::Hit& hit : outside_bytes::scan(kRoot / folder)) {
      const std::string file = fs::relative(hit.file, kRoot).string();
      if (file.starts_with("sdk/io/")) continue;
      const auto& known = outside_bytes::kExceptions;
      const bool allowed = std::any_of(known.begin(), known.end(), [&](const auto& exception) {
        return exception.file == file && exception.call == hit.call;
      });
      if (allowed) {
        used.emplace(file, hit.call);
      } else {
        FAIL_CHECK(file << ":" << hit.line << ": '" << hit.call
                        << "' reads without a bound; use frt/io/file.hpp or frt/io/json.hpp");
      }
    }
  }
  for (const outside_bytes::Exception& exception : outside_bytes::kExceptions) {
    CAPTURE(exception.file);
    CAPTURE(exception.call);
    CHECK(used.contains({exception.file, exception.call}));  // else take it off the list
    CHECK(exception.reason[0] != '\0');
  }
}

TEST_CASE("a reader without a bound would be noticed") {
  for (const char* planted : {"auto j = nlohmann::json::parse(text);",
                              "Json::parse(file, nullptr, false)",
                              "models::Json::parse(value)",
                              "ordered_json::accept(text)",
                              "json::sax_parse(a, b, &c)",
                              "json::from_msgpack(bytes)",
                              "toml::parse(text)",
                              "std::ifstream file(path);",
                              "std::ofstream out(a), std::fstream in(b);",
                              "fopen(path, \"r\")",
                              "std::fopen(path, \"r\")",
                              "::open(path.c_str(), O_RDONLY | O_CLOEXEC)",
                              "toml::parse_file(path)",
                              "file >> json;",
                              "std::cin >> own_json;",
                              "std::basic_ifstream<char> in(path);",
                              "ifstream in(path);",
                              "fstream both(path);",
                              "fopen64(path, \"r\")",
                              "open(path, 0)",
                              "::openat(folder, name, 0x80000, 0)",
                              "get(\"http://host\"); std::ifstream in(path);",
                              "f('\"', \"//\"); fopen(path, \"r\")",
                              "history(h, &e, H_LOAD, file);",
                              "sqlite3_open_v2(path, &database, flags, nullptr);",
                              "openat(folder, name, O_RDWR)",
                              "flags |= O_CREAT;",
                              "open(path, O_WRONLY)"}) {
    CAPTURE(planted);
    CHECK_FALSE(outside_bytes::calls_in(planted).empty());
  }
  for (const char* fine :
       {"io::parse_json(text, \"x\")", "catch (const Json::parse_error&)",
        "catch (const toml::parse_error& error)", "io::open_file(path, \"x\")", "stream.open(1, 0)",
        "say(\"a // b\");  // fopen(path, mode)", "log(\"std::ifstream\");", "size >> json_shift",
        "// std::ifstream would wait", "#include <fstream>", "fdopen(file, \"r\")",
        "std::ofstream out(path);", "Checkpoint::open(path)", "FRT_O_CREATED"}) {
    CAPTURE(fine);
    CHECK(outside_bytes::calls_in(fine).empty());
  }
  std::string folder = (fs::temp_directory_path() / "frt-outside-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  fs::create_directories(fs::path(folder) / "src");
  std::ofstream(fs::path(folder) / "src" / "a.cpp") << "int a;\nstd::ifstream in(path);\n";
  const auto hits = outside_bytes::scan(folder);
  REQUIRE(hits.size() == 1);
  CHECK(hits[0].line == 2);
  CHECK(hits[0].call == "ifstream");
  fs::remove_all(folder);
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
