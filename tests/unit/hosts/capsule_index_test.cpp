// SPDX-License-Identifier: Apache-2.0
// The index of capsules, damaged, forged, locked or full: the files are the truth.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "capsule_folder.hpp"

using namespace frt::test;
using frt::Error;

namespace {

void run_sql(const fs::path& database, const char* sql) {
  sqlite3* handle = nullptr;
  REQUIRE(sqlite3_open(database.c_str(), &handle) == SQLITE_OK);
  char* problem = nullptr;
  sqlite3_exec(handle, sql, nullptr, nullptr, &problem);
  INFO(problem);
  CHECK(problem == nullptr);
  sqlite3_free(problem);
  sqlite3_close(handle);
}

}  // namespace

TEST_CASE("what the index says about a file is not believed when the file is to be removed") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  run_sql(world.folder / "index.sqlite", "UPDATE capsules SET kind = 'turn' WHERE name = 'a'");
  { world.registry(0, 0, 1).settle(); }
  CHECK(present(world) == std::vector<std::string>{"a"});
}

TEST_CASE("no flipped bit in the index costs a capsule or fails a command") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
    save(world, registry, "b", 2);
  }
  const fs::path index = world.folder / "index.sqlite";
  const std::string good = read_bytes(index);
  REQUIRE(good.size() > 4096);
  // Of every region some bits; all of them at FRT_FLIP_INDEX=1000000.
  const uint64_t bits = good.size() * 8;
  const uint64_t step =
      std::max<uint64_t>(1, bits / std::max<uint64_t>(1, number_from("FRT_FLIP_INDEX", 250)));
  std::mt19937_64 random(4);
  for (uint64_t at = 0; at < bits; at += step) {
    const uint64_t bit = std::min(bits - 1, at + random() % step);
    CAPTURE(bit);
    for (const char* suffix : {"-wal", "-shm", ".damaged"}) fs::remove(index.string() + suffix);
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    write_bytes(index, bad);
    for (int twice = 0; twice < 2; ++twice) {
      const std::string problem = failure([&] {
        CapsuleRegistry registry = world.registry(0, 0, 1);
        registry.settle();
        CHECK(registry.list().size() == 2);
        CHECK(found(registry, 1) == "a");
        CHECK(found(registry, 2) == "b");
      });
      CHECK(problem == "");
      REQUIRE(present(world) == std::vector<std::string>{"a", "b"});
    }
  }
}

TEST_CASE("an index of another schema, of endless views, cut or no file at all is made anew") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path index = world.folder / "index.sqlite";
  SUBCASE("an endless view in place of the table") {
    run_sql(index,
            "ALTER TABLE capsules RENAME TO old; CREATE VIEW capsules AS WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT name, file_bytes, modified_ns, inode, "
            "problem, kind, parent, owner, model, created, boundary, cold_path, digest, last_used "
            "FROM old, n");
  }
  SUBCASE("a trigger beside the table") {
    run_sql(index,
            "CREATE TRIGGER more AFTER INSERT ON capsules BEGIN INSERT INTO capsules(name) SELECT "
            "new.name || 'x'; END");
  }
  SUBCASE("cut") {
    fs::resize_file(index, 4000);
  }
  SUBCASE("empty") {
    fs::resize_file(index, 0);
  }
  SUBCASE("a pipe") {
    fs::remove(index);
    REQUIRE(mkfifo(index.c_str(), 0600) == 0);
  }
  SUBCASE("a folder") {
    fs::remove(index);
    fs::create_directory(index);
  }
  SUBCASE("a link") {
    fs::remove(index);
    fs::create_symlink(world.folder / "elsewhere", index);
  }
  for (int twice = 0; twice < 2; ++twice) {
    CapsuleRegistry registry = world.registry(0, 0, 1);
    registry.settle();
    CHECK(registry.list().size() == 1);
    CHECK(world.restores(registry, "a", counting(1, 20)));
    CHECK(registry.opening().read == (twice == 0 ? 1 : 0));
  }
  CHECK_FALSE(fs::exists(world.folder / "elsewhere"));
}

TEST_CASE("an index that others lock is gone without, and says so") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  sqlite3* handle = nullptr;
  REQUIRE(sqlite3_open((world.folder / "index.sqlite").c_str(), &handle) == SQLITE_OK);
  REQUIRE(sqlite3_exec(handle, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE", nullptr, nullptr,
                       nullptr) == SQLITE_OK);
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    CHECK(has(registry.opening().problem, "locked"));
    CHECK(world.restores(registry, "a", counting(1, 20)));
    save(world, registry, "b", 2);
    registry.pin("b", true);
    registry.remove("a");
  }
  sqlite3_close(handle);
  CapsuleRegistry registry = world.registry(0, 0, 0);
  CHECK(registry.opening().problem == "");
  CHECK(found(registry, 2) == "b");
  CHECK(registry.list().size() == 1);
}

TEST_CASE("an index that breaks while it is used fails no command and loses nothing") {
  World world;
  CapsuleRegistry registry = world.registry(0, 0, 0);
  save(world, registry, "a", 1);
  run_sql(world.folder / "index.sqlite", "DROP TABLE capsules");
  save(world, registry, "b", 2);
  CHECK(registry.take_notices().size() == 1);
  registry.pin("a", true);
  CHECK(world.restores(registry, "a", counting(1, 20)));
  registry.remove("a");
  CHECK(present(world) == std::vector<std::string>{"b"});
  CHECK(registry.take_notices().empty());
}

TEST_CASE("an index that cannot be opened for want of descriptors stays as it is") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const std::string before = read_bytes(world.folder / "index.sqlite");
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  const rlimit tight{static_cast<rlim_t>(next) + 1, limit.rlim_max};  // one: SQLite needs more
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  std::string problem;
  const std::string failed = failure([&] {
    const CapsuleIndex index(table(), world.folder);
    problem = index.opening().problem;
  });
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(failed == "");
  CHECK(has(problem, "is not used"));
  CHECK_FALSE(fs::exists(world.folder / "index.sqlite.damaged"));
  CHECK(read_bytes(world.folder / "index.sqlite") == before);
  CHECK(CapsuleIndex(table(), world.folder).opening().kept == 1);
}

TEST_CASE("a capsule that is found damaged while others lock the index is noted afterwards") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  {
    CapsuleIndex index(table(), world.folder);
    sqlite3* handle = nullptr;
    REQUIRE(sqlite3_open((world.folder / "index.sqlite").c_str(), &handle) == SQLITE_OK);
    REQUIRE(sqlite3_exec(handle, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
    index.mark_damaged("a", "its payload differs");
    sqlite3_close(handle);
  }
  const CapsuleIndex index(table(), world.folder);
  CHECK(index.opening().kept == 1);
  CHECK(index.rows().at(0).damaged);
}

TEST_CASE("names with parts of a path reach no file outside the folder") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  const fs::path inner = world.folder / "inner";
  fs::create_directory(inner);
  CapsuleIndex index(table(), inner);
  for (const char* name : {"../a", "/a", "", "a/../a", "..", "inner/../../a"}) {
    CAPTURE(name);
    CHECK(has(failure([&] { index.pin(name, true); }), "FRT_ERR_INVALID_ARGUMENT"));
    CHECK(has(failure([&] { index.pin(name, false); }), "FRT_ERR_INVALID_ARGUMENT"));
    CHECK(has(failure([&] { index.remove(name); }), "FRT_ERR_INVALID_ARGUMENT"));
  }
  CHECK(fs::exists(world.folder / "a.capsule"));
  CHECK_FALSE(fs::exists(world.folder / "a.pin"));
}
