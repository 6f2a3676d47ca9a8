// SPDX-License-Identifier: Apache-2.0
// Capsules that come from others or go to them: whose files are trusted, and imports and exports
// while others change what is read.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capsule_folder.hpp"
#include "lm/capsules/transfer.hpp"

using namespace frt::test;
using frt::Error;

TEST_CASE(
    "a folder or a file that others can write is refused with the fix, unless it is trusted") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path file = world.folder / "a.capsule", other = world.folder / "other";
  CapsuleOptions trusting{0, 0, 0, world.folder};
  trusting.trust = true;
  const auto restored = [&] {
    return failure([&] { world.registry(0, 0, 0).restore("a", 1, world.stream); });
  };
  const auto imported = [&](bool trust) {
    return failure([&] { import_capsule(table(), other, file, "b", trust); });
  };
  SUBCASE("the file") {
    fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
    CHECK(has(world.registry(0, 0, 0).take_notices().at(0), "chmod 600"));
    CHECK_FALSE(restored().empty());
    CHECK(has(imported(false), "chmod 600"));
    CHECK(imported(true).empty());
  }
  SUBCASE("the file becomes so later") {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
    CHECK(has(failure([&] { registry.restore("a", 1, world.stream); }), "chmod 600"));
  }
  SUBCASE("the folder") {
    fs::permissions(world.folder, fs::perms::all);
    CHECK(has(restored(), "chmod 700"));
    CHECK(has(restored(), "capsule_trust"));
    CHECK(has(failure([&] { import_capsule(table(), world.folder, file, "b"); }), "chmod 700"));
  }
  SUBCASE("the folder, with the sticky bit") {
    fs::permissions(world.folder, fs::perms::all | fs::perms::sticky_bit);
    CHECK(restored().empty());
  }
  SUBCASE("the file is another user's") {
    if (geteuid() != 0 || chown(file.c_str(), 12345, 12345) != 0) return;
    CHECK(has(world.registry(0, 0, 0).take_notices().at(0), "chown"));
    CHECK_FALSE(restored().empty());
    CHECK(has(imported(false), "12345"));
    CHECK(imported(true).empty());
  }
  SUBCASE("the folder is another user's") {
    if (geteuid() != 0 || chown(world.folder.c_str(), 12345, 12345) != 0) return;
    CHECK(has(restored(), "12345"));
  }
  CapsuleRegistry registry(world.rig.context, world.verbs, trusting);
  CHECK(world.restores(registry, "a", counting(1, 20)));
}

TEST_CASE("an import of a pipe or a folder is an error at once") {
  World world;
  const fs::path pipe = world.folder / "pipe", folder = world.folder / "folder";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_directory(folder);
  for (const fs::path& file : {pipe, folder}) {
    CHECK(has(failure([&] { import_capsule(table(), world.folder, file, "a"); }), "FRT_ERR_IO"));
  }
  CHECK(present(world).empty());
}

TEST_CASE("imports into one folder at the same time do not disturb each other") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path other = world.folder / "other";
  std::mutex mutex;
  std::vector<std::string> failures;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 25; ++i) {
          const std::string name = "c" + std::to_string(thread * 100 + i);
          const std::string text =
              failure([&] { import_capsule(table(), other, world.folder / "a.capsule", name); });
          const std::lock_guard lock(mutex);
          if (!text.empty()) failures.push_back(text);
        }
      });
    }
  }
  CHECK(failures.empty());
  CHECK(frt::list_capsules(table(), other).size() == 100);
}

TEST_CASE("an export of another user's file is refused, as its copy would be trusted") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path file = world.folder / "a.capsule", copy = world.folder / "copy";
  REQUIRE(chmod(file.c_str(), 0666) == 0);
  CHECK(has(failure([&] { export_capsule(table(), world.folder, "a", copy); }), "a.capsule"));
  CHECK_FALSE(fs::exists(copy));
  export_capsule(table(), world.folder, "a", copy, true);
  CHECK(fs::exists(copy));
}

TEST_CASE("an export or an import of a damaged file names that file") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path file = world.folder / "a.capsule", given = world.folder / "given";
  std::string bad = read_bytes(file);
  bad[bad.size() - 100] = static_cast<char>(~bad[bad.size() - 100]);
  write_bytes(file, bad);
  write_bytes(given, bad);
  const std::string exported =
      failure([&] { export_capsule(table(), world.folder, "a", world.folder / "copy"); });
  CHECK(has(exported, file.string()));
  CHECK_FALSE(has(exported, "/.import-"));
  const std::string imported =
      failure([&] { import_capsule(table(), world.folder / "other", given, "b"); });
  CHECK(has(imported, given.string()));
  CHECK_FALSE(has(imported, "/.import-"));
}

TEST_CASE("what is exported is what was verified, though others replace the file meanwhile") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path file = world.folder / "a.capsule", copy = world.folder / "copy";
  const std::string good = read_bytes(file);
  std::string bad = good;
  bad[bad.size() - 100] = static_cast<char>(~bad[bad.size() - 100]);
  write_bytes(world.folder / "good", good);
  write_bytes(world.folder / "bad", bad);
  const std::jthread swapping([&](const std::stop_token& stop) {
    for (bool turn = false; !stop.stop_requested(); turn = !turn) {
      fs::create_hard_link(world.folder / (turn ? "good" : "bad"), world.folder / "next");
      fs::rename(world.folder / "next", file);
    }
  });
  // As often as it takes to meet both files.
  int exported = 0, refused = 0;
  for (int i = 0; i < 200 || ((exported == 0 || refused == 0) && i < 20000); ++i) {
    if (!failure([&] { export_capsule(table(), world.folder, "a", copy); }).empty()) {
      ++refused;
      continue;
    }
    ++exported;
    REQUIRE(read_bytes(copy) == good);
    fs::remove(copy);
  }
  CHECK(exported > 0);
  CHECK(refused > 0);
}

TEST_CASE("an import leaves the folder of another import alone, and clears what was left behind") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path other = world.folder / "other", live = other / ".import-999999",
                 dead = other / ".import-left";
  fs::create_directories(live);
  fs::create_directories(dead);
  std::ofstream(dead / "import.capsule") << "half";
  const int lock = ::open(live.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(lock >= 0);
  REQUIRE(::flock(lock, LOCK_EX | LOCK_NB) == 0);
  import_capsule(table(), other, world.folder / "a.capsule", "b");
  ::close(lock);
  CHECK(fs::exists(live));
  CHECK_FALSE(fs::exists(dead));
  CHECK(frt::list_capsules(table(), other) == std::vector<std::string>{"b"});
}
