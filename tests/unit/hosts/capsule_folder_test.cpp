// SPDX-License-Identifier: Apache-2.0
// A folder of capsules that is shared, damaged or forged: nothing that has a name is lost, nothing
// that another process uses is removed, and nothing is restored as what it is not.
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <random>
#include <thread>

#include "capsule/capsule.hpp"
#include "capsule/save.hpp"

#include "capsule_world.hpp"
#include "lm/capsule_file.hpp"
#include "lm/capsule_name.hpp"
#include "lm/capsule_transfer.hpp"
#include "lm/capsule_use.hpp"

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

namespace {

const frt_capsules_v1& table() {
  return *frt::core::capsules_table();
}

// A file that any process could have written: right digests, whatever it says.
void forge(const World& world, const std::string& name, uint64_t rows,
           const std::string& metadata) {
  world.verbs.fingerprint();
  const frt::Capsule state = world.verbs.snapshot(0, rows, FRT_SPACE_HOST_PINNED, world.stream);
  state.wait();
  state.save(world.folder, name, metadata);
}

void save(const World& world, CapsuleRegistry& registry, const std::string& name, int32_t first) {
  world.fill(0, static_cast<uint8_t>(first));
  registry.save(0, content_of(counting(first, 20), name), world.stream, false);
}

// Files as a disk tier leaves them behind, of which nobody keeps any in memory.
std::vector<std::string> leave_automatic(const World& world, int32_t count) {
  std::vector<std::string> names;
  for (int32_t i = 1; i <= count; ++i) {
    CapsuleContent content = content_of(counting(100 * i, 20));
    content.fingerprint = fingerprint_digest(world.verbs.fingerprint());
    content.name = automatic_name(content);
    world.fill(0, static_cast<uint8_t>(100 * i));
    forge(world, content.name, 20, content_to_text(content));
    names.push_back(content.name);
  }
  return names;
}

std::vector<std::string> present(const World& world) {
  std::vector<std::string> names = frt::list_capsules(table(), world.folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::string found(CapsuleRegistry& registry, int32_t first) {
  const auto match = registry.find(counting(first, 30), "");
  return match ? match->name : "";
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

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

// ---- what is said twice ------------------------------------------------------------------------

TEST_CASE("metadata of one capsule on the state of another are refused wherever they are read") {
  World world;
  world.fill(0, 1);
  forge(world, "forged", 22, content_to_text(content_of(counting(1, 139), "forged")));
  CHECK(has(failure([&] {
              import_capsule(table(), world.folder / "other", world.folder / "forged.capsule", "a");
            }),
            "139"));
  CHECK(frt::list_capsules(table(), world.folder / "other").empty());
  CHECK(has(failure([&] { verify_capsule_file(table(), world.folder, "forged"); }), "22"));
  CHECK(
      has(failure([&] { export_capsule(table(), world.folder, "forged", world.folder / "copy"); }),
          "22"));
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, kPlenty);
  CHECK_FALSE(failure([&] { registry.restore("forged", 1, world.stream); }).empty());
  CHECK_FALSE(registry.find(counting(1, 200), ""));
  REQUIRE(registry.take_notices().size() == 1);
}

TEST_CASE(
    "a capsule that becomes another one after the index was read is not restored as the first") {
  World world;
  world.fill(0, 1);
  forge(world, "a", 139, content_to_text(content_of(counting(1, 139), "a")));
  CapsuleRegistry registry = world.registry(kPlenty, kPlenty, 0);
  REQUIRE(registry.find(counting(1, 200), ""));
  fs::remove(world.folder / "a.capsule");
  forge(world, "a", 22, content_to_text(content_of(counting(1, 139), "a")));
  CHECK(has(failure([&] { registry.restore("a", 1, world.stream); }), "22"));
  CHECK_FALSE(registry.find(counting(1, 200), ""));
}

TEST_CASE("content that no host writes is refused by the member") {
  const CapsuleContent good = content_of(counting(1, 20), "a");
  const auto refused = [](const CapsuleContent& content) {
    return failure([&] { content_from_text(content_to_text(content)); });
  };
  REQUIRE(refused(good).empty());
  CapsuleContent content = good;
  content.name = "../a";
  CHECK(has(refused(content), "name"));
  content = good;
  content.parent = "a/b";
  CHECK(has(refused(content), "parent"));
  content = good;
  content.tokens[3] = -7;
  content.digest = digest_of(content.owner, content.tokens);
  CHECK(has(refused(content), "tokens"));
  content = good;
  content.extra = nlohmann::ordered_json::array({1});
  CHECK(has(refused(content), "extra"));
  content = good;
  content.sampling.top_p = -3;
  CHECK(has(refused(content), "top-p"));
  content = good;
  content.sampling.temperature = 1e38f;
  std::string text = content_to_text(content);
  text.replace(text.find("\"top_k\":0"), 9, "\"top_k\":1e300");
  CHECK(has(failure([&] { content_from_text(text); }), "top_k"));
  text = content_to_text(good);
  text.replace(text.find("\"token\":-1"), 10, "\"token\":4294967297");
  CHECK(has(failure([&] { content_from_text(text); }), "pending"));
  text = content_to_text(good);
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  text.replace(text.find("\"extra\":{}"), 10, "\"extra\":{\"a\":" + deep + "}");
  CHECK(has(failure([&] { content_from_text(text); }), "FRT_ERR_FORMAT"));
}

TEST_CASE("what could not be read again is not saved") {
  World world;
  world.fill(0, 1);
  CapsuleRegistry registry = world.registry(0, 0, 0);
  CapsuleContent content = content_of(counting(1, 20), "a");
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 200; ++i) deep = nlohmann::ordered_json::array({deep});
  content.extra["messages"] = deep;
  CHECK_FALSE(failure([&] { registry.save(0, content, world.stream, false); }).empty());
  CHECK(present(world).empty());
  CHECK_FALSE(registry.has("a"));
}

TEST_CASE("tokens beyond the vocabulary and another chunk are refused by a registry") {
  World world;
  world.fill(0, 1);
  CapsuleContent content = content_of(counting(1, 20), "a");
  const auto restored = [&](ContentModel model) {
    forge(world, "a", 20, content_to_text(content));
    std::string problem;
    {
      CapsuleOptions options{0, 0, 0, world.folder};
      options.model = model;
      CapsuleRegistry registry(world.rig.context, world.verbs, options);
      problem = failure([&] { registry.restore("a", 1, world.stream); });
    }
    fs::remove(world.folder / "a.capsule");
    return problem;
  };
  CHECK(restored({21, 16}) == "");
  CHECK(has(restored({20, 16}), "token 20"));
  CHECK(has(restored({21, 32}), "prefill_chunk"));
  content.pending.token = 21;
  CHECK(has(restored({21, 16}), "token 21"));
  content.pending.token = -1;
  content.chunk = 8;  // the manifest of the file says 16
  CHECK(has(restored({21, 8}), "chunk"));
}

// ---- several processes -------------------------------------------------------------------------

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

// ---- the index ---------------------------------------------------------------------------------

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

// ---- whose files -------------------------------------------------------------------------------

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

// ---- faults ------------------------------------------------------------------------------------

namespace {

// The system's calls; one of them fails with `error`.
struct FaultyLayer : frt::core::FileLayer {
  enum Call { kNone, kCreate, kWrite, kSync, kPublish, kSyncFolder };
  Call fails = kNone;
  int error = ENOSPC;

  int create(int folder, const char* name) override {
    return fails == kCreate ? failed() : FileLayer::create(folder, name);
  }
  ssize_t write_at(int file, const void* data, std::size_t bytes, off_t offset) override {
    return fails == kWrite ? failed() : FileLayer::write_at(file, data, bytes, offset);
  }
  int sync_data(int file) override {
    return fails == kSync ? failed() : FileLayer::sync_data(file);
  }
  int publish(int folder, const char* from, const char* to, bool replace) override {
    return fails == kPublish ? failed() : FileLayer::publish(folder, from, to, replace);
  }
  int sync_folder(int folder) override {
    return fails == kSyncFolder ? failed() : FileLayer::sync_folder(folder);
  }

 private:
  int failed() const {
    errno = error;
    return -1;
  }
};

FaultyLayer faulty_files;
frt_status load_status = FRT_OK;
uint64_t snapshots = 0;

// Core's verbs, with faults.
const frt_capsules_v1* faulty_table() {
  static const frt_capsules_v1 faulty = [] {
    frt_capsules_v1 made = table();
    made.save = [](frt_capsule capsule, const char* folder, const char* name, const void* metadata,
                   uint64_t bytes, uint32_t flags, frt_error* error) noexcept {
      return frt::guard(error, [&] {
        frt::core::save_capsule(faulty_files, *capsule, frt::core::CapsulePath(folder, name),
                                {static_cast<const char*>(metadata), bytes},
                                (flags & FRT_CAPSULE_REPLACE) != 0);
      });
    };
    made.load_begin = [](frt_state state, const char* folder, const char* name, frt_space space,
                         frt_sink metadata, void* user, frt_capsule* capsule,
                         frt_error* error) noexcept {
      if (load_status != FRT_OK) return frt::set_error(error, load_status, "no memory");
      return table().load_begin(state, folder, name, space, metadata, user, capsule, error);
    };
    made.snapshot = [](frt_state state, uint32_t slot, uint64_t boundary, frt_space space,
                       frt_stream stream, frt_capsule* capsule, frt_error* error) noexcept {
      ++snapshots;
      return table().snapshot(state, slot, boundary, space, stream, capsule, error);
    };
    return made;
  }();
  faulty_files.fails = FaultyLayer::kNone;
  load_status = FRT_OK;
  snapshots = 0;
  return &faulty;
}

struct FaultyWorld : World {
  frt::Capsules faulty{faulty_table(), rig.context, state.handle()};
  CapsuleOptions::Clock::time_point now{};

  CapsuleOptions options(uint64_t device, uint64_t host, uint64_t disk) {
    CapsuleOptions made{device, host, disk, folder};
    made.now = [this] { return now; };
    return made;
  }
};

}  // namespace

TEST_CASE("a full disk is tried again later, and both is told") {
  FaultyWorld world;
  uint64_t each = 0;
  {
    CapsuleRegistry probe = world.registry(0, kPlenty, 0);
    world.keep(probe, counting(9, 20));
    each = probe.list().at(0).host_bytes;
  }
  CapsuleRegistry registry(world.rig.context, world.faulty, world.options(0, each, kPlenty));
  int32_t first = 1;
  const auto keep = [&] {
    world.keep(registry, counting(100 * first++, 20));
    registry.settle();
    return present(world).size();
  };
  faulty_files.fails = FaultyLayer::kWrite;
  keep();
  CHECK(keep() == 0);
  const std::vector<std::string> told = registry.take_notices();
  REQUIRE(told.size() == 1);
  CHECK(has(told[0], "No space left"));
  CHECK(has(told[0], "for 1 s"));
  faulty_files.fails = FaultyLayer::kNone;
  CHECK(keep() == 0);  // not yet
  CHECK(registry.take_notices().empty());
  world.now += std::chrono::seconds(1);
  CHECK(keep() == 1);
  CHECK(registry.take_notices() ==
        std::vector<std::string>{"capsules are moved to the disk again"});
  CHECK(keep() == 2);
  // It fails again and again: less and less is tried.
  faulty_files.fails = FaultyLayer::kSync;
  keep();
  CHECK(has(registry.take_notices().at(0), "for 1 s"));
  world.now += std::chrono::seconds(1);
  keep();
  CHECK(has(registry.take_notices().at(0), "for 2 s"));
  world.now += std::chrono::hours(1);
  for (int i = 0; i < 20; ++i, world.now += std::chrono::hours(1)) keep();
  CHECK(has(registry.take_notices().back(), "for 300 s"));
}

TEST_CASE("saving says what became of it, whichever call fails") {
  for (const auto fails : {FaultyLayer::kCreate, FaultyLayer::kWrite, FaultyLayer::kSync,
                           FaultyLayer::kPublish, FaultyLayer::kSyncFolder}) {
    for (const bool replaces : {false, true}) {
      CAPTURE(static_cast<int>(fails));
      CAPTURE(replaces);
      FaultyWorld world;
      CapsuleRegistry registry(world.rig.context, world.faulty, world.options(0, 0, 0));
      if (replaces) save(world, registry, "a", 1);
      faulty_files.fails = fails;
      world.fill(0, 2);
      CHECK(has(
          failure([&] { registry.save(0, content_of(counting(2, 20), "a"), world.stream, true); }),
          "No space left"));
      faulty_files.fails = FaultyLayer::kNone;
      const bool visible = fs::exists(world.folder / "a.capsule");
      CHECK(registry.has("a") == visible);
      if (!visible) continue;
      // What the registry says is what the file holds.
      const int32_t first = fails == FaultyLayer::kSyncFolder ? 2 : 1;
      CHECK(found(registry, first) == "a");
      CHECK(world.restores(registry, "a", counting(first, 20)));
    }
  }
}

TEST_CASE("a capsule that memory is short for stays, and is used when there is some") {
  FaultyWorld world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "a", 1);
  }
  CapsuleRegistry registry(world.rig.context, world.faulty, world.options(0, kPlenty, 0));
  for (const frt_status status : {FRT_ERR_OUT_OF_MEMORY, FRT_ERR_IO}) {
    load_status = status;
    CHECK(has(failure([&] { registry.restore("a", 1, world.stream); }), frt::status_name(status)));
    CHECK(found(registry, 1) == "a");
  }
  load_status = FRT_OK;
  CHECK(world.restores(registry, "a", counting(1, 20)));
}

TEST_CASE("a capsule is found damaged once: it is told, forgotten, and listed as damaged") {
  World world;
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    save(world, registry, "head", 1);
    save(world, registry, "payload", 2);
  }
  const auto damage = [&](const char* name, std::streamoff at) {
    const fs::path path = world.folder / (std::string(name) + ".capsule");
    const fs::file_time_type before = fs::last_write_time(path);
    {
      std::fstream file(path, std::ios::in | std::ios::out);
      file.seekp(at);
      file.put('\x5A');
    }
    fs::last_write_time(path, before);  // as a disk that forgets does
  };
  damage("head", 300);
  damage("payload", 4200);
  const auto problems = [&](bool again) {
    CapsuleIndex index(table(), world.folder);
    if (again) index.refresh_all();
    std::string names;
    for (const IndexRow& row : index.rows()) names += row.damaged ? row.name + " " : "";
    return names;
  };
  CHECK(problems(false).empty());
  CHECK(problems(true) == "head ");
  {
    CapsuleRegistry registry = world.registry(0, 0, 0);
    const std::vector<std::string> told = registry.take_notices();
    REQUIRE(told.size() == 1);
    CHECK(has(told[0], "'head'"));
    CHECK(has(failure([&] { registry.restore("payload", 1, world.stream); }), "FRT_ERR_FORMAT"));
    registry.settle();
  }
  CHECK(problems(false) == "head payload ");
  CHECK(problems(true) == "head payload ");
}

TEST_CASE("no capsule is taken that no budget has room for") {
  FaultyWorld world;
  world.fill(0, 1);
  frt_capsule_layout layout{};
  layout.struct_size = sizeof(layout);
  layout.region_count = 2;
  layout.regions = world.regions;
  CapsuleOptions options = world.options(0, 0, 0);
  const uint64_t piece = world.verbs.usage(FRT_SPACE_DEVICE).piece_bytes;
  options.device_bytes = options.host_bytes = piece;
  options.layout = &layout;
  CapsuleRegistry registry(world.rig.context, world.faulty, options);
  const uint64_t rows = piece / kRow;  // and the fixed region: more than a piece
  REQUIRE(rows <= kRows);
  CHECK(registry.keep(0, content_of(counting(1, rows)), world.stream).empty());
  CHECK(snapshots == 0);
  CHECK_FALSE(registry.keep(0, content_of(counting(1, 20)), world.stream).empty());
  CHECK(snapshots == 1);
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
