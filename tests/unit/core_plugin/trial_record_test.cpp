// SPDX-License-Identifier: Apache-2.0
// Trials of plugins wherever they lie, and good verdicts that are kept between runs.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <frt/core/registry.hpp>

#include "helpers.hpp"
#include "plugin/trial_record.hpp"

using namespace frt::core;
using test::error_of;
using test::has;

namespace {

namespace fs = std::filesystem;
using std::chrono::system_clock;

// A registry whose own folder is `folder`: what is installed.
RegistryOptions installed(const fs::path& folder, const fs::path& trials = {}) {
  RegistryOptions options;
  options.use_environment = false;
  options.own_folder = folder;
  options.trials = trials;
  return options;
}

// A plugin and a library in a folder, and a record of them that keeps also what has just changed.
struct World {
  World() {
    fs::copy_file(test::kGoodModel, plugin);
    folder.write("libacme.so.1", "one");
  }
  test::Folder folder;
  fs::path plugin = folder.path() / "m.so", library = folder.path() / "libacme.so.1";
  fs::path kept = folder.path() / "cache" / "trials";
  TrialRecord record{kept, std::chrono::nanoseconds(0)};

  void add() const { record.add(plugin, {library.string()}, system_clock::now()); }
  fs::path file() const { return kept / "verdicts"; }
};

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("an installed plugin that aborts is refused by its trial, and the host lives on") {
  const test::Folder folder;
  fs::copy_file(test::broken("aborts"), folder.path() / "a.so");
  Registry registry(installed(folder.path()));
  CHECK(registry.candidates().at(0).trusted);
  const frt::Error error = error_of([&] { registry.load("test.broken"); });
  CHECK(has(error.what(), "was refused: loading it ended the process"));
  CHECK(has(error.what(), "no driver found"));
}

// The abort happens in whoever loads the file, so a trial that is left out shows.
TEST_CASE("a registry tries a plugin until a good verdict is kept, and again when it changed") {
  const test::Folder folder;
  const fs::path trials = folder.path() / "trials", plugins = folder.path() / "plugins";
  fs::create_directory(plugins);
  const fs::path plugin = plugins / "a.so";
  fs::copy_file(test::broken("aborts"), plugin);
  const auto refused = [&] {
    Registry registry(installed(plugins, trials));
    return has(error_of([&] { registry.load("test.broken"); }).what(), "loading it ended");
  };
  CHECK(refused());
  CHECK_FALSE(fs::exists(trials / "verdicts"));  // a bad verdict is not kept
  CHECK(refused());

  // That a good one is used shows when it lies: a child loads the file without a trial.
  const TrialRecord record(trials, std::chrono::nanoseconds(0));
  record.add(plugin, {}, system_clock::now());
  REQUIRE(record.knows(plugin));
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDERR_FILENO);
    ::signal(SIGABRT, SIG_DFL);
    Registry registry(installed(plugins, trials));
    registry.load("test.broken");
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));

  fs::remove(plugin);
  fs::copy_file(test::broken("aborts"), plugin);
  CHECK(refused());
}

TEST_CASE("a verdict counts as long as the plugin and its libraries are the same files") {
  const World world;
  CHECK_FALSE(world.record.knows(world.plugin));
  world.add();
  REQUIRE(world.record.knows(world.plugin));
  CHECK_FALSE(world.record.knows(world.folder.path() / "other.so"));
  struct stat before {};
  REQUIRE(::stat(world.plugin.c_str(), &before) == 0);

  SUBCASE("a library of another content") {
    write(world.library, "two");
  }
  SUBCASE("a library that is gone") {
    fs::remove(world.library);
  }
  SUBCASE("a plugin of the same bytes under the same name") {
    fs::copy_file(test::kGoodModel, world.folder.path() / "new");
    fs::rename(world.folder.path() / "new", world.plugin);
  }
  SUBCASE("a plugin that was changed in place and given its old time") {
    std::fstream file(world.plugin, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(0, std::ios::end).put('x');
    file.close();
    fs::resize_file(world.plugin, static_cast<uintmax_t>(before.st_size));
    const timespec times[] = {before.st_atim, before.st_mtim};
    REQUIRE(::utimensat(AT_FDCWD, world.plugin.c_str(), times, 0) == 0);
  }
  SUBCASE("another place to look for libraries") {
    ::setenv("LD_LIBRARY_PATH", world.folder.path().c_str(), 1);
  }
  CHECK_FALSE(world.record.knows(world.plugin));
  ::unsetenv("LD_LIBRARY_PATH");
}

TEST_CASE("a record that is damaged or not the user's own counts as empty") {
  const World world;
  world.add();
  REQUIRE(world.record.knows(world.plugin));
  const std::string text = test::read(world.file());
  SUBCASE("cut anywhere, or with any byte changed, it says nothing wrong") {
    for (std::size_t at = 0; at < text.size(); ++at) {
      CAPTURE(at);
      write(world.file(), text.substr(0, at));
      CHECK_FALSE(world.record.knows(world.plugin));
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      write(world.file(), changed);
      CHECK_FALSE(world.record.knows(world.plugin));
    }
  }
  SUBCASE("a verdict without its files") {
    write(world.file(), text.substr(0, text.find("file ")));
    CHECK_FALSE(world.record.knows(world.plugin));
  }
  SUBCASE("longer than any record") {
    write(world.file(), text + std::string(4u << 20, 'x'));
    CHECK_FALSE(world.record.knows(world.plugin));
  }
  SUBCASE("a link") {
    fs::rename(world.file(), world.folder.path() / "elsewhere");
    fs::create_symlink(world.folder.path() / "elsewhere", world.file());
    CHECK_FALSE(world.record.knows(world.plugin));
  }
  SUBCASE("in a folder that others may write to") {
    REQUIRE(::chmod(world.kept.c_str(), 0777) == 0);
    CHECK_FALSE(world.record.knows(world.plugin));
  }
  SUBCASE("in no folder") {
    CHECK_FALSE(TrialRecord("").knows(world.plugin));
  }
}

TEST_CASE("a damaged record is written anew") {
  const World world;
  world.add();
  write(world.file(), "frt-trials/1\nnonsense\nplugin /a\n");
  world.add();
  CHECK(world.record.knows(world.plugin));
  CHECK(test::read(world.file()).find("nonsense") == std::string::npos);
}

TEST_CASE("a record holds a bounded number of verdicts, the latest ones") {
  const World world;
  for (std::size_t i = 0; i < TrialRecord::kMostVerdicts + 3; ++i) {
    const fs::path plugin = world.folder.write("p" + std::to_string(i) + ".so", "x");
    world.record.add(plugin, {}, system_clock::now());
  }
  const auto knows = [&](std::size_t i) {
    return world.record.knows(world.folder.path() / ("p" + std::to_string(i) + ".so"));
  };
  CHECK_FALSE(knows(2));
  CHECK(knows(3));
  CHECK(knows(TrialRecord::kMostVerdicts + 2));
  CHECK(test::read(world.file()).size() < (1u << 20));
}

TEST_CASE("where nothing can be written every start has its trial") {
  const World world;
  const fs::path file = world.folder.write("file", "x");
  const TrialRecord record(file / "trials", std::chrono::nanoseconds(0));
  CHECK_NOTHROW(record.add(world.plugin, {}, system_clock::now()));
  CHECK_FALSE(record.knows(world.plugin));
  Registry registry(installed(world.folder.path(), file / "trials"));
  CHECK_NOTHROW(registry.load("test.model"));
}

TEST_CASE("what changed just before its trial is not kept") {
  const World world;
  const TrialRecord careful(world.kept);
  careful.add(world.plugin, {}, system_clock::now());
  CHECK_FALSE(careful.knows(world.plugin));
  // Two seconds later, by a clock that the test sets.
  careful.add(world.plugin, {}, system_clock::now() + std::chrono::seconds(3));
  CHECK(careful.knows(world.plugin));
}
