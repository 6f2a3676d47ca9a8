// SPDX-License-Identifier: Apache-2.0
// Files whose digests are right and whose content is not what a save writes: digests find
// accidents, not forgers. What is loaded is what the file holds, at a boundary that the arena has;
// it stays within its own slot, and nothing is taken for state that the file did not hold.
#include "capsule_rig.hpp"
#include "forged_file.hpp"
#include "json_mutation.hpp"

namespace frt::test {
namespace {

const std::vector<frt_fingerprint_field> kFields = {{"backend", "mock"}, {"model", "m"}};

Shape shape_of(uint32_t page_rows) {
  Shape shape;
  shape.slots = 3;
  shape.max_rows = 40;
  shape.page_rows = page_rows;
  shape.spare_pages = page_rows ? 20 : 0;
  shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 20, 1, 0},
                   {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 6, 40, 0},
                   {"draft", FRT_REGION_ROWS, FRT_DTYPE_BF16, 10, 40, 1}};
  return shape;
}

std::string random_text(std::mt19937_64& random, uint64_t bytes) {
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  return text;
}

void forge(ForgedFile& file, std::mt19937_64& random) {
  const auto below = [&](uint64_t end) { return random() % end; };
  switch (below(5)) {
    case 0:
      for (uint64_t changes = 1 + below(3); changes > 0; --changes) mutate(file.manifest, random);
      break;
    case 1:
      for (uint64_t changes = 1 + below(20); changes > 0; --changes) {
        file.payload.at(below(file.payload.size())) = static_cast<char>(random());
      }
      break;
    case 2:
      file.payload = random_text(random, 1 + below(2 * file.payload.size()));
      if (below(2) && file.manifest.is_object() && file.manifest["payload"].is_object()) {
        file.manifest["payload"]["bytes"] = file.payload.size();
      }
      break;
    case 3: {
      const uint64_t edge = uint64_t{1} << below(64);
      file.header[8 * (1 + below(7))] = edge - below(2);  // version and flags, lengths, chunk
      break;
    }
    default:
      file.metadata = random_text(random, below(100));
  }
}

}  // namespace

// FRT_CAPSULE_CASES=1000000 for a long run.
TEST_CASE("a forged file with right digests is refused, or is no more than it holds") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  std::mt19937_64 random(71);
  const uint64_t cases = number_from("FRT_CAPSULE_CASES", rig.mock ? 600 : 60);
  uint64_t loaded = 0;
  for (const uint32_t page_rows : {0u, 4u}) {
    const Arena arena(rig, shape_of(page_rows));
    arena.capsules.bind(kFields);
    arena.capsules.fingerprint();
    arena.live(0, 22, random);
    {
      const Capsule capsule = arena.capsules.snapshot(0, 22, FRT_SPACE_HOST, arena.stream);
      capsule.sync();
      capsule.save(folder.path, "good", "{\"tokens\":[1,2,3]}", FRT_CAPSULE_REPLACE);
    }
    const Bytes neighbour = arena.live(1, 40, random);
    for (uint64_t i = 0; i < cases / 2; ++i) {
      CAPTURE(page_rows);
      CAPTURE(i);
      ForgedFile file(folder.path + "/good.capsule");
      for (uint64_t changes = 1 + random() % 2; changes > 0; --changes) forge(file, random);
      file.sign();
      file.write(folder.path + "/forged.capsule");
      CAPTURE(file.manifest.dump());
      try {
        std::string metadata;
        const Capsule capsule =
            arena.capsules.load(folder.path, "forged", FRT_SPACE_HOST, &metadata);
        ++loaded;
        REQUIRE(capsule.boundary() <= 40);
        CHECK(file.manifest["boundary"] == capsule.boundary());
        CHECK(metadata == file.metadata);
        CHECK(capsule.read() == file.payload);
        arena.live(2, 40, random);
        capsule.restore(2, arena.stream);
        const Capsule again =
            arena.capsules.snapshot(2, capsule.boundary(), FRT_SPACE_HOST, arena.stream);
        again.sync();
        CHECK(again.read() == file.payload);
        CHECK_FAILS(
            FRT_ERR_OUT_OF_RANGE, "boundary",
            (void)arena.capsules.snapshot(2, capsule.boundary() + 1, FRT_SPACE_HOST, arena.stream));
      } catch (const Error& error) {
        const bool told = error.status() == FRT_ERR_FORMAT || error.status() == FRT_ERR_MISMATCH ||
                          error.status() == FRT_ERR_OUT_OF_RANGE ||
                          (error.status() == FRT_ERR_UNSUPPORTED && file.header.contains(8));
        CHECK_MESSAGE(told, std::string(error.what()));
      }
      if (i % 50 == 0) CHECK(arena.content(1, 40) == neighbour);
    }
    CHECK(arena.content(1, 40) == neighbour);
  }
  CHECK(loaded > cases / 10);
  CHECK(loaded < cases);
}

TEST_CASE("a build that a file names is one printable line, since people are shown it") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  const Arena arena(rig, shape_of(4));
  arena.capsules.bind(kFields);
  arena.capsules.fingerprint();
  const Capsule capsule = arena.capsules.snapshot(0, 0, FRT_SPACE_HOST, arena.stream);
  capsule.sync();
  capsule.save(folder.path, "good", "");
  for (const char* text : {"1\nbuild.device: here 1, stored 2", "\x1b[2J", "\u202e"}) {
    CAPTURE(text);
    for (const char* member : {"name", "value"}) {
      ForgedFile file(folder.path + "/good.capsule");
      nlohmann::json field = {{"name", "build.device"}, {"value", "1"}};
      field[member] = "build." + std::string(text);
      file.manifest["fingerprint"].push_back(field);
      file.sign();
      file.write(folder.path + "/forged.capsule");
      CHECK_FAILS(FRT_ERR_FORMAT, "do not print",
                  (void)arena.capsules.load(folder.path, "forged", FRT_SPACE_HOST));
    }
  }
}

TEST_CASE("a name that is none is quoted so that it can be shown") {
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "'a\\nb\\xff' is no name of a capsule",
              verify_capsule(*core::capsules_table(), "/nowhere", "a\nb\xff"));
}

}  // namespace frt::test
