// SPDX-License-Identifier: Apache-2.0
// One folder of capsules, several processes: nothing that has a name is lost, and nothing that
// another process uses is removed.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "capsule_folder.hpp"
#include "lm/capsules/use.hpp"

using namespace frt::test;
using frt::Error;

namespace {

// Folders that were flushed, while somebody asks.
std::vector<std::string>* flushed = nullptr;

}  // namespace

// In place of the system library's, in this program.
extern "C" int fsync(int file) {
  std::error_code failure;
  const auto path = fs::read_symlink("/proc/self/fd/" + std::to_string(file), failure);
  if (flushed && fs::is_directory(path, failure)) flushed->push_back(path);
  return static_cast<int>(syscall(SYS_fsync, file));
}

TEST_CASE("a registry without a disk tier removes no capsule of the folder") {
  World world;
  leave_automatic(world, 3);
  const std::vector<std::string> before = present(world);
  REQUIRE(before.size() == 3);
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "named", 1);
    world.restores(registry, "named", counting(1, 20));
    registry.tend();
  }
  CHECK(present(world).size() == 4);
}

TEST_CASE("a file that somebody named is never removed by a budget, whatever kind it is of") {
  World world;
  const std::string name = leave_automatic(world, 1).front();
  fs::rename(world.folder / (name + ".capsule"), world.folder / "mine.capsule");
  { world.registry(0, 0, 1).settle(); }
  CHECK(present(world) == std::vector<std::string>{"mine"});
  fs::rename(world.folder / "mine.capsule", world.folder / (name + ".capsule"));
  { world.registry(0, 0, 1).settle(); }
  CHECK(present(world).empty());
}

TEST_CASE("a pin that another process set holds at once") {
  World world;
  const std::vector<std::string> names = leave_automatic(world, 2);
  CapsuleRegistry registry = world.registry(0, 0, kPlenty);
  std::ofstream(world.folder / (names[0] + ".pin")).close();
  CapsuleIndex index(table(), world.folder);
  CHECK(has(index.evict(names[0]), "pinned"));
  CHECK(index.evict(names[1]).empty());
  CHECK(present(world) == std::vector{names[0]});
}

TEST_CASE("a pin that was set or taken away is on the disk") {
  World world;
  const std::string name = leave_automatic(world, 1).front();
  CapsuleIndex index(table(), world.folder);
  for (const bool pinned : {true, false}) {
    std::vector<std::string> folders;
    flushed = &folders;
    index.pin(name, pinned);
    flushed = nullptr;
    CHECK(folders == std::vector{fs::canonical(world.folder).string()});
    CHECK(fs::exists(world.folder / (name + ".pin")) == pinned);
  }
}

TEST_CASE("two processes that keep the same capsule share its file") {
  World world;
  const auto move_down = [&](CapsuleRegistry& registry) {
    const std::string name = world.keep(registry, counting(1, 20));
    world.keep(registry, counting(2, 20));
    registry.settle();
    return name;
  };
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(0, kPlenty, 0);
    world.keep(probe, counting(9, 20));
    each = probe.list().at(0).host_bytes;
  }
  CapsuleRegistry one = world.registry(0, each, kPlenty);
  CapsuleRegistry other = world.registry(0, each, kPlenty);
  const std::string name = move_down(one);
  CHECK(move_down(other) == name);
  CHECK(one.take_notices().empty());
  CHECK(other.take_notices().empty());
  CHECK(world.restores(other, name, counting(1, 20)));
}

TEST_CASE("two models on one folder each keep the same tokens, and each restores its own") {
  World one("1"), other("2");
  other.folder = one.folder;
  const auto bytes_of = [](const World& world) {
    CapsuleRegistry probe = world.registry(0, kPlenty, 0);
    world.keep(probe, counting(9, 20));
    return probe.list().at(0).host_bytes;
  };
  const uint64_t each = bytes_of(one);
  const auto keep = [](const World& world, CapsuleRegistry& registry) {
    world.keep(registry, counting(1, 20));
    world.keep(registry, counting(200, 20));
    registry.settle();
  };
  {
    CapsuleRegistry first = one.registry(0, each, kPlenty);
    keep(one, first);
    first.settle();
  }
  REQUIRE(present(one).size() == 1);
  {
    CapsuleRegistry second = other.registry(0, each, kPlenty);
    CHECK_FALSE(second.find(counting(1, 30), ""));  // not its own
    keep(other, second);
    CHECK(second.take_notices().empty());
  }
  CHECK(present(one).size() == 2);
  for (const World* world : {&one, &other}) {
    CapsuleRegistry registry = world->registry(0, each, kPlenty);
    CHECK(registry.list().size() == 2);  // both count
    const std::string name = found(registry, 1);
    REQUIRE_FALSE(name.empty());
    CHECK(world->restores(registry, name, counting(1, 20)));
    CHECK(registry.take_notices().empty());
  }
}

TEST_CASE("a file of another model under the very name is not taken for a capsule that was saved") {
  World one("1"), other("2");
  other.folder = one.folder;
  CapsuleContent content = content_of(counting(1, 20));
  content.fingerprint = fingerprint_digest(one.verbs.fingerprint());
  content.name = automatic_name(content);
  const auto forge_other = [&] {
    other.fill(0, 1);
    forge(other, content.name, 20, content_to_text(content));
  };
  SUBCASE("that is there already") {
    forge_other();
    CapsuleRegistry registry = one.registry(kPlenty, kPlenty, kPlenty);
    CHECK(one.keep(registry, counting(1, 20)).empty());
    CHECK(has(registry.take_notices().at(0), "holds something else"));
  }
  SUBCASE("that comes later") {
    uint64_t each = 0;
    {
      CapsuleRegistry probe = one.registry(0, kPlenty, 0);
      one.keep(probe, counting(9, 20));
      each = probe.list().at(0).host_bytes;
    }
    CapsuleRegistry registry = one.registry(0, each, kPlenty);
    forge_other();
    one.keep(registry, counting(1, 20));
    one.keep(registry, counting(200, 20));
    registry.settle();
    const std::vector<std::string> told = registry.take_notices();
    REQUIRE(told.size() == 1);
    CHECK(has(told[0], "holds something else"));
    CHECK_FALSE(registry.has(content.name));
  }
}

TEST_CASE(
    "a registry removes no capsule that another one uses, and its own when they are too many") {
  World world;
  const std::vector<std::string> names = leave_automatic(world, 4);
  CapsuleRegistry one = world.registry(0, kPlenty, kPlenty);
  REQUIRE(world.restores(one, names[0], counting(100, 20)));
  {
    CapsuleRegistry other = world.registry(0, 0, 1);  // a byte: everything is too much
    other.settle();
  }
  CHECK(present(world) == std::vector{names[0]});
  CHECK(world.restores(one, names[0], counting(100, 20)));
}

TEST_CASE("a capsule that left memory is used no more, and another process may remove it") {
  World world;
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(0, kPlenty, 0);
    world.keep(probe, counting(9, 20));
    each = probe.list().at(0).host_bytes;
  }
  CapsuleRegistry registry = world.registry(0, each, kPlenty);
  const std::string left = world.keep(registry, counting(1, 20));
  const std::string stays = world.keep(registry, counting(200, 20));
  registry.settle();
  CHECK(CapsuleIndex(table(), world.folder).evict(left) == "");
  CHECK(present(world).empty());
  // Loaded again, and driven out by a third.
  world.keep(registry, counting(300, 20));
  registry.settle();
  REQUIRE(present(world) == std::vector{stays});
  REQUIRE(world.restores(registry, stays, counting(200, 20)));
  registry.settle();
  CHECK(CapsuleIndex(table(), world.folder).evict(stays) != "");
  world.keep(registry, counting(400, 20));
  registry.settle();
  CHECK(CapsuleIndex(table(), world.folder).evict(stays) == "");
}

TEST_CASE("a capsule that another process examines and lets stay is not forgotten") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  CapsuleRegistry registry = world.registry(0, kPlenty, 0);
  CapsuleUse other(world.folder);
  REQUIRE(other.claim("a"));
  CHECK(has(failure([&] { registry.restore("a", 1, world.stream); }), "FRT_ERR_BAD_STATE"));
  CHECK(found(registry, 1) == "a");
  other.yield("a");
  CHECK(world.restores(registry, "a", counting(1, 20)));
}

TEST_CASE("a moment in which another process examines a capsule is waited for") {
  World world;
  const std::string name = leave_automatic(world, 1).front();
  CapsuleRegistry registry = world.registry(0, kPlenty, 0);
  CapsuleUse other(world.folder);
  REQUIRE(other.claim(name));
  const std::jthread examining([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    other.yield(name);
  });
  CHECK(world.restores(registry, name, counting(100, 20)));
}

TEST_CASE("nothing is removed by a budget while nobody can tell who uses it") {
  World world;
  const std::vector<std::string> names = leave_automatic(world, 2);
  fs::create_symlink("nowhere", world.folder / ".in-use");
  {
    CapsuleRegistry registry = world.registry(0, kPlenty, 1);
    registry.settle();
  }
  CHECK(present(world).size() == 2);
  fs::remove(world.folder / ".in-use");
  { world.registry(0, 0, 1).settle(); }
  CHECK(present(world).empty());
}

TEST_CASE("a capsule that is pinned on its way to the disk stays pinned, in memory and on it") {
  World world;
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(0, kPlenty, 0);
    world.keep(probe, counting(9, 20));
    each = probe.list().at(0).host_bytes;
  }
  CapsuleRegistry registry = world.registry(0, each, kPlenty);
  const std::string name = world.keep(registry, counting(1, 20));
  world.keep(registry, counting(200, 20));  // moves the first one down
  registry.pin(name, true);
  registry.settle();
  CHECK(fs::exists(world.folder / (name + ".pin")));
  bool in_memory = false;
  for (const CapsuleView& view : registry.list()) {
    if (view.name == name) in_memory = view.pinned && view.host_bytes > 0;
  }
  CHECK(in_memory);
}

TEST_CASE("a capsule that is removed while a budget removes it is gone, and that is no error") {
  World world;
  const std::string name = leave_automatic(world, 1).front();
  CapsuleRegistry registry = world.registry(0, 0, 1);
  registry.tend();  // its removal begins
  REQUIRE(failure([&] { registry.remove(name); }) == "");
  CHECK_FALSE(registry.has(name));
  CHECK(present(world).empty());
}
