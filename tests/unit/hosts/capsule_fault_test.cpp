// SPDX-License-Identifier: Apache-2.0
// Calls of the system that fail: what was acknowledged is on the disk, what failed is told and
// tried again. Looks behind the table of core, to have files fail.
#include <cerrno>

#include "capsule/save.hpp"
#include "capsule_folder.hpp"

using namespace frt::test;
using frt::Error;

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
uint64_t device_room = UINT64_MAX;  // snapshots that fit on the device

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
      if (space == FRT_SPACE_DEVICE) {
        if (device_room == 0) return frt::set_error(error, FRT_ERR_OUT_OF_MEMORY, "no memory");
        --device_room;
      }
      return table().snapshot(state, slot, boundary, space, stream, capsule, error);
    };
    made.release = [](frt_capsule capsule) noexcept {
      frt_capsule_info info{};
      info.struct_size = sizeof(info);
      if (table().info(capsule, &info) == FRT_OK && info.space != FRT_SPACE_HOST_PINNED) {
        ++device_room;
      }
      table().release(capsule);
    };
    return made;
  }();
  faulty_files.fails = FaultyLayer::kNone;
  load_status = FRT_OK;
  snapshots = 0;
  device_room = UINT64_MAX / 2;
  return &faulty;
}

struct FaultyWorld : World {
  using World::World;
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

TEST_CASE("on shared memory a named save makes room as other saves do, or goes to the host") {
  FaultyWorld world("1", FRT_DEVICE_SHARED_MEMORY);
  const auto tiers = [](CapsuleRegistry& registry) {
    std::string text;
    for (const CapsuleView& view : registry.list()) {
      text += view.name == "named" || view.name == "again" ? view.name : "automatic";
      text += view.device_bytes > 0 ? " device, " : view.host_bytes > 0 ? " host, " : " none, ";
    }
    return text;
  };
  {
    CapsuleRegistry registry(world.rig.context, world.faulty, world.options(kPlenty, kPlenty, 0));
    device_room = 1;
    REQUIRE_FALSE(world.keep(registry, counting(1, 20)).empty());
    registry.save(0, content_of(counting(2, 20), "named"), world.stream, false);
    CHECK(has(tiers(registry), "named device"));
    CHECK(has(tiers(registry), "automatic host"));
    registry.pin("named", true);
    registry.save(0, content_of(counting(3, 20), "again"), world.stream, false);
    CHECK(has(tiers(registry), "again host"));
    CHECK(has(tiers(registry), "named device"));
  }
  device_room = UINT64_MAX / 2;
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
  const uint64_t slab = world.verbs.usage(FRT_SPACE_DEVICE).slab_bytes;
  options.device_bytes = options.host_bytes = slab;
  options.layout = layout;
  CapsuleRegistry registry(world.rig.context, world.faulty, options);
  const uint64_t rows = slab / kRow;  // and the fixed region: more than a slab
  REQUIRE(rows <= kRows);
  CHECK(registry.keep(0, content_of(counting(1, rows)), world.stream).empty());
  CHECK(snapshots == 0);
  CHECK_FALSE(registry.keep(0, content_of(counting(1, 20)), world.stream).empty());
  CHECK(snapshots == 1);
}
