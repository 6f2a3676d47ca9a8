// SPDX-License-Identifier: Apache-2.0
// What becomes of files when a writer is killed, or the system refuses a call, at every step of a
// save. A child process saves capsule after capsule and reports each acknowledged one; then:
//   - every acknowledged capsule is there and holds what it should,
//   - every file of a capsule's name is a whole capsule,
//   - a sweep leaves nothing but those.
// FRT_KILL_POINTS: how many kills.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <set>

#include "capsule/file_layer.hpp"
#include "capsule/save.hpp"
#include "capsule_rig.hpp"

namespace fs = std::filesystem;

namespace frt::test {
namespace {

constexpr uint32_t kVersions = 3;  // contents that a name can have

// The system's calls, with something done at the n-th.
class WatchedLayer : public core::FileLayer {
 public:
  int create(int folder, const char* name) override {
    return step([&] { return FileLayer::create(folder, name); }, [] {});
  }
  ssize_t write_at(int file, const void* data, std::size_t bytes, off_t offset) override {
    return step([&] { return FileLayer::write_at(file, data, bytes, offset); },
                [&] { FileLayer::write_at(file, data, bytes / 2, offset); });
  }
  int sync_data(int file) override {
    return step([&] { return FileLayer::sync_data(file); }, [] {});
  }
  int publish(int folder, const char* temporary, const char* name, bool replace) override {
    return step([&] { return FileLayer::publish(folder, temporary, name, replace); }, [] {});
  }
  int sync_folder(int folder) override {
    return step([&] { return FileLayer::sync_folder(folder); }, [] {});
  }

 protected:
  // At the chosen call: true if `call` shall not be made.
  virtual bool at_the_point() = 0;
  virtual void behind_the_point() {}

  uint64_t point = UINT64_MAX;  // the call, from 0
  bool half = false;            // half of it is done before

 private:
  template <class Call, class Half>
  auto step(Call&& call, Half&& do_half) -> decltype(call()) {
    if (count_.fetch_add(1) != point) return call();
    if (half) do_half();
    if (at_the_point()) return -1;
    const auto result = call();
    behind_the_point();
    return result;
  }
  std::atomic<uint64_t> count_{0};
};

class DeadlyLayer final : public WatchedLayer {
 public:
  DeadlyLayer(uint64_t at, uint64_t way) : after_(way == 1) {
    point = at;
    half = way == 2;
  }

 private:
  bool at_the_point() override {
    if (!after_) ::raise(SIGKILL);
    return false;
  }
  void behind_the_point() override { ::raise(SIGKILL); }
  bool after_;
};

class FailingLayer final : public WatchedLayer {
 public:
  FailingLayer(uint64_t at, int error) : error_(error) {
    point = at;
    half = true;
  }
  bool failed() const { return failed_; }

 private:
  bool at_the_point() override {
    errno = error_;
    failed_ = true;
    return true;
  }
  int error_;
  std::atomic<bool> failed_{false};
};

struct Workshop {
  DeviceRig rig;
  TemporaryFolder folder;
  std::unique_ptr<Arena> arena;
  std::vector<Capsule> versions;
  std::vector<std::string> payloads;

  explicit Workshop(uint64_t bytes) {
    Shape shape;
    shape.slots = 1;
    shape.max_rows = 4;
    shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, bytes, 1, 0},
                     {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 10, 4, 0}};
    arena = std::make_unique<Arena>(rig, shape);
    const std::vector<frt_fingerprint_field> fields = {{"model", "m"}};
    arena->capsules.bind(fields);
    arena->capsules.fingerprint();
    arena->state.reserve(0, 0, 3, arena->stream);
    for (uint32_t i = 0; i < kVersions; ++i) {
      Recorder(arena->stream)
          .fill(arena->state.info().buffer, 0, arena->state.info().slot_stride,
                static_cast<uint8_t>(17 * i + 1));
      versions.push_back(arena->capsules.snapshot(0, 3, FRT_SPACE_HOST, arena->stream));
      versions.back().sync();
      payloads.push_back(versions.back().read());
    }
  }

  // What the file called `name` holds: a version, or kVersions if it is no capsule.
  uint32_t version_of(const std::string& name) const {
    std::string metadata;
    Capsule loaded;
    const frt_error error = caught(
        [&] { loaded = arena->capsules.load(folder.path, name, FRT_SPACE_HOST, &metadata); });
    if (error.code != FRT_OK) {
      MESSAGE(error.message);
      return kVersions;
    }
    const auto version = static_cast<uint32_t>(metadata.at(0) - '0');
    return version < kVersions && loaded.read() == payloads[version] ? version : kVersions;
  }
};

struct Acknowledged {
  char name[12];
  uint32_t version;
};

// The child: saves until it dies, at most `saves` times, and tells of each. Every third time it
// replaces a name.
[[noreturn]] void write_until_killed(const Workshop& shop, core::FileLayer& files, int report,
                                     uint32_t saves, uint32_t seed) {
  for (uint32_t i = 0; i < saves; ++i) {
    const bool replace = i % 3 == 2;
    Acknowledged done{};
    std::snprintf(done.name, sizeof(done.name), "c%u", replace ? i - 1 : i);
    done.version = (i + seed) % kVersions;
    const std::string metadata = std::to_string(done.version) + std::string(i * 50, 'm');
    try {
      core::save_capsule(files, *shop.versions[done.version].handle(),
                         core::CapsulePath(shop.folder.path.c_str(), done.name), metadata, replace);
    } catch (const std::exception&) {
      ::_exit(3);
    }
    if (::write(report, &done, sizeof(done)) != sizeof(done)) ::_exit(4);
  }
  ::_exit(0);
}

// Starts a writer, lets it die, and looks at what is there. True if it did die.
template <class Kill>
bool kill_once(const Workshop& shop, core::FileLayer& files, uint32_t saves, uint32_t seed,
               Kill&& kill) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) write_until_killed(shop, files, pipe[1], saves, seed);
  ::close(pipe[1]);
  kill(child);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));

  std::map<std::string, uint32_t> acknowledged;
  Acknowledged done{};
  while (::read(pipe[0], &done, sizeof(done)) == sizeof(done)) {
    acknowledged[done.name] = done.version;
  }
  ::close(pipe[0]);

  const auto names = list_capsules(*core::capsules_table(), shop.folder.path);
  const std::set<std::string> there(names.begin(), names.end());
  for (const auto& [name, version] : acknowledged) CHECK(there.count(name) == 1);
  uint64_t later = 0;  // finished, but killed before it could tell
  for (const std::string& name : names) {
    CAPTURE(name);
    const uint32_t found = shop.version_of(name);
    CHECK(found < kVersions);
    const auto told = acknowledged.find(name);
    later += told == acknowledged.end() || told->second != found ? 1 : 0;
  }
  CHECK(later <= 1);
  sweep_capsules(*core::capsules_table(), shop.folder.path);
  for (const auto& entry : fs::directory_iterator(shop.folder.path)) {
    CHECK(entry.path().extension() == ".capsule");
    fs::remove(entry.path());
  }
  return WIFSIGNALED(status);
}

bool possible() {
  const char* backend = std::getenv("FRT_TEST_BACKEND");
  return !backend || !*backend;  // a plugin has threads, which do not survive a fork
}

}  // namespace

TEST_CASE(
    "a writer that is killed at any call loses nothing acknowledged and leaves nothing torn") {
  if (!possible()) return;
  const uint64_t points = number_from("FRT_KILL_POINTS", 120);
  const Workshop small(700), large(uint64_t{9} << 20);
  std::mt19937_64 random(number_from("FRT_KILL_SEED", 1));
  uint64_t killed = 0;
  for (uint64_t i = 0; i < points; ++i) {
    CAPTURE(i);
    const bool is_large = i % 8 == 7;
    // A save of the small one is 7 calls, of the large one 9 or more.
    const uint64_t at = is_large ? random() % 30 : i % 8 + random() % 42;
    CAPTURE(at);
    DeadlyLayer files(at, random() % 3);
    killed += kill_once(is_large ? large : small, files, is_large ? 3 : 7, static_cast<uint32_t>(i),
                        [](pid_t) {})
                  ? 1
                  : 0;
  }
  CHECK(killed > points * 9 / 10);
  MESSAGE("kill points: ", killed);
}

TEST_CASE(
    "a writer that is killed at any time loses nothing acknowledged and leaves nothing torn") {
  if (!possible()) return;
  const uint64_t points = number_from("FRT_KILL_POINTS", 120) / 4;
  const Workshop shop(300000);
  std::mt19937_64 random(number_from("FRT_KILL_SEED", 1));
  for (uint64_t i = 0; i < points; ++i) {
    CAPTURE(i);
    kill_once(shop, core::system_files(), 1000, static_cast<uint32_t>(i), [&](pid_t child) {
      ::usleep(static_cast<useconds_t>(random() % 6000));
      ::kill(child, SIGKILL);
    });
  }
  MESSAGE("kills at random times: ", points);
}

TEST_CASE("whichever call of a save the system refuses, the reason is said and nothing is left") {
  const Workshop shop(700);

  const auto save = [&](core::FileLayer& files, const char* name, uint32_t version, bool replace) {
    core::save_capsule(files, *shop.versions[version].handle(),
                       core::CapsulePath(shop.folder.path.c_str(), name), std::to_string(version),
                       replace);
  };
  save(core::system_files(), "kept", 0, false);
  for (const int error : {ENOSPC, EIO, EDQUOT, EROFS}) {
    for (const bool replace : {false, true}) {
      uint64_t at = 0;
      for (;; ++at) {
        CAPTURE(at);
        CAPTURE(error);
        FailingLayer files(at, error);
        const frt_error result = caught([&] { save(files, replace ? "kept" : "new", 1, replace); });
        if (!files.failed()) break;
        CHECK(result.code == FRT_ERR_IO);
        CHECK(std::string(result.message).find(std::strerror(error)) != std::string::npos);
        if (error == ENOSPC) {
          CHECK(std::string(result.message).find("more room") != std::string::npos);
        }
        const auto names = list_capsules(*core::capsules_table(), shop.folder.path);
        CHECK(names == std::vector<std::string>{"kept"});
        CHECK(std::distance(fs::directory_iterator(shop.folder.path), {}) == 1);
        CHECK(shop.version_of("kept") < kVersions);
      }
      CHECK(at >= 6);
      save(core::system_files(), "kept", 0, true);
      if (!replace) remove_capsule(*core::capsules_table(), shop.folder.path, "new");
    }
  }
}

}  // namespace frt::test
