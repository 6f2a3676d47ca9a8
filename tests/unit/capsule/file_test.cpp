// SPDX-License-Identifier: Apache-2.0
// Capsule files: what comes back, what is refused and why, and what is left behind: nothing.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "capsule_rig.hpp"

namespace fs = std::filesystem;

namespace frt::test {
namespace {

const frt_capsules_v1& verbs() {
  return *core::capsules_table();
}

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}
void write_file(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

const std::vector<frt_fingerprint_field> kFields = {{"backend", "mock"},
                                                    {"plugin.file", "aa11"},
                                                    {"model.config", "tiny"},
                                                    {"model.weights:a.safetensors", "bb22"},
                                                    {"model.chunk", "8"}};

Shape small_shape() {
  Shape shape;
  shape.max_rows = 40;
  shape.page_rows = 4;
  shape.spare_pages = 20;
  shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 20, 1, 0},
                   {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 6, 40, 0},
                   {"draft", FRT_REGION_ROWS, FRT_DTYPE_BF16, 10, 40, 1}};
  return shape;
}

// An arena with a fingerprint.
struct Deployment : Arena {
  Deployment(const DeviceRig& rig, const Shape& given,
             const std::vector<frt_fingerprint_field>& fields = kFields)
      : Arena(rig, given) {
    capsules.bind(fields);
    capsules.fingerprint();
  }
};

Capsule ready(const Capsules& capsules, uint64_t boundary, const Stream& stream,
              frt_space space = FRT_SPACE_HOST) {
  Capsule capsule = capsules.snapshot(0, boundary, space, stream);
  capsule.sync();
  return capsule;
}

// Runs `body` where files may not grow beyond `bytes`.
template <class Body>
void with_small_files(uint64_t bytes, Body&& body) {
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  struct rlimit small = before;
  small.rlim_cur = bytes;
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  body();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

}  // namespace

TEST_CASE("a capsule comes back from a file byte for byte, into any host space and any process") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  std::mt19937_64 random(3);
  const auto readable = [&](const Arena& arena) {
    constexpr frt_space kSpaces[] = {FRT_SPACE_HOST, FRT_SPACE_HOST_PINNED, FRT_SPACE_DEVICE};
    return kSpaces[random() % (arena.shared() ? 3 : 2)];
  };
  for (uint64_t i = 0; i < number_from("FRT_CAPSULE_CASES", rig.mock ? 100 : 20); ++i) {
    CAPTURE(i);
    const Shape shape = random_shape(random);
    const uint64_t boundary = random() % (shape.max_rows + 1);
    const std::string name = "case-" + std::to_string(i);
    std::string metadata(random() % 300, '\0');
    for (char& c : metadata) c = static_cast<char>(random());
    Bytes saved;
    std::string payload;
    {
      const Deployment first(rig, shape);
      saved = first.live(0, boundary, random);
      const Capsule capsule = ready(first.capsules, boundary, first.stream, readable(first));
      payload = capsule.read();
      capsule.save(folder.path, name, metadata);
    }
    verify_capsule(verbs(), folder.path, name);
    const CapsuleDescription description = describe_capsule(verbs(), folder.path, name);
    CHECK(description.metadata == metadata);
    CHECK(description.manifest.find("\"boundary\":" + std::to_string(boundary)) !=
          std::string::npos);

    const Deployment second(rig, shape);
    std::string found;
    Capsule capsule = second.capsules.load(folder.path, name, readable(second), &found);
    CHECK(found == metadata);
    CHECK(capsule.boundary() == boundary);
    CHECK(capsule.read() == payload);
    if (random() % 2) capsule = capsule.copy(FRT_SPACE_DEVICE, second.stream);
    second.live(1, random() % (shape.max_rows + 1), random);
    capsule.restore(1, second.stream);
    CHECK(second.content(1, boundary) == saved);
  }
  CHECK(list_capsules(verbs(), folder.path).size() ==
        number_from("FRT_CAPSULE_CASES", rig.mock ? 100 : 20));
}

TEST_CASE("a large capsule is written and read in many chunks by many threads") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  std::mt19937_64 random(5);
  Shape shape;
  shape.max_rows = 1000;
  shape.regions = {{"state", FRT_REGION_FIXED, FRT_DTYPE_F32, 3000001, 1, 0},
                   {"keys", FRT_REGION_ROWS, FRT_DTYPE_BF16, 30011, 1000, 0}};
  const Deployment arena(rig, shape);
  Bytes image = arena.image();
  for (std::size_t i = 0; i < image.size(); i += 97) image[i] = static_cast<uint8_t>(random());
  arena.set_image(image);
  const Bytes saved = arena.content(0, 999);
  arena.state.reserve(0, 0, 999, arena.stream);
  ready(arena.capsules, 999, arena.stream).save(folder.path, "large", "");
  verify_capsule(verbs(), folder.path, "large");
  const Capsule loaded = arena.capsules.load(folder.path, "large", FRT_SPACE_HOST_PINNED);
  loaded.restore(1, arena.stream);
  CHECK(arena.content(1, 999) == saved);

  std::string file = read_file(folder.path + "/large.capsule");
  file[file.size() / 2] ^= 1;
  write_file(folder.path + "/large.capsule", file);
  CHECK_FAILS(FRT_ERR_FORMAT, "chunk 3", verify_capsule(verbs(), folder.path, "large"));
  const Capsule broken = arena.capsules.load_begin(folder.path, "large", FRT_SPACE_HOST);
  CHECK_FAILS(FRT_ERR_NOT_READY, "load_finish", broken.restore(1, arena.stream));
  CHECK_FALSE(broken.query());
  CHECK_FAILS(FRT_ERR_FORMAT, "chunk 3", broken.load_finish());
  CHECK_FAILS(FRT_ERR_NOT_READY, "loaded to its end", broken.restore(1, arena.stream));
  CHECK_FAILS(FRT_ERR_BAD_STATE, "released", (void)broken.query());
  CHECK_FAILS(FRT_ERR_BAD_STATE, "not being loaded", broken.load_finish());
}

TEST_CASE("the file of a given content is the published one, byte for byte") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  const Deployment arena(rig, small_shape());
  arena.state.reserve(0, 0, 21, arena.stream);
  Bytes image = arena.image();
  uint8_t value = 0;
  arena.for_each_valid(0, 21, [&](uint64_t at, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; ++i) image[at + i] = value++;
  });
  arena.set_image(image);
  ready(arena.capsules, 21, arena.stream).save(folder.path, "c", "{\"tokens\":[1,2,3]}");
  const std::string published = std::string(FRT_FIXTURES_DIR) + "/capsule";
  CHECK(read_file(folder.path + "/c.capsule") == read_file(published + "/published.capsule"));
  std::string metadata;
  const Capsule loaded = arena.capsules.load(published, "published", FRT_SPACE_HOST, &metadata);
  CHECK(metadata == "{\"tokens\":[1,2,3]}");
  const Bytes saved = arena.content(0, 21);
  loaded.restore(1, arena.stream);
  CHECK(arena.content(1, 21) == saved);
}

TEST_CASE("samples for other readers: files, and beside each the content of its regions") {
  // reader_test.py names the folder.
  const char* folder = std::getenv("FRT_SAMPLE_FOLDER");
  if (!folder) return;
  const DeviceRig rig;
  std::mt19937_64 random(29);
  for (int i = 0; i < 16; ++i) {
    Shape shape = random_shape(random);
    if (i == 0) {  // three chunks
      shape.regions.push_back({"large", FRT_REGION_FIXED, FRT_DTYPE_F32, 9000001, 1, 0});
    }
    const uint64_t boundary = random() % (shape.max_rows + 1);
    const Deployment arena(rig, shape);
    arena.live(0, boundary, random);
    const std::string name = "sample-" + std::to_string(i);
    ready(arena.capsules, boundary, arena.stream).save(folder, name, "of " + name);
    const Bytes image = arena.image();
    const auto table = arena.table();
    for (const Shape::Region& region : shape.regions) {
      std::string content;
      const uint64_t rows =
          region.kind == FRT_REGION_FIXED ? 1 : arena.valid_rows(region, boundary);
      for (uint64_t row = 0; row < rows; ++row) {
        const uint64_t at = arena.row_at(region, 0, row, table);
        content.append(image.begin() + static_cast<std::ptrdiff_t>(at),
                       image.begin() + static_cast<std::ptrdiff_t>(at + region.row_bytes));
      }
      write_file(std::string(folder) + "/" + name + "." + region.name, content);
    }
  }
}

TEST_CASE("every flipped bit of every byte of a file is detected") {
  const DeviceRig rig;
  if (!rig.mock) return;
  const TemporaryFolder folder;
  std::mt19937_64 random(7);
  const Deployment arena(rig, small_shape());
  arena.live(0, 21, random);
  ready(arena.capsules, 21, arena.stream).save(folder.path, "small", "{\"tokens\":[1,2,3]}");
  const std::string path = folder.path + "/small.capsule", good = read_file(path);
  REQUIRE(good.size() > 4096);
  uint64_t accepted = 0, loaded = 0;
  const uint64_t bits = number_from("FRT_FLIP_BITS", 1);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (uint64_t bit = 0; bit < bits; ++bit) {
      const auto mask = static_cast<char>(1u << (bits == 8 ? bit : random() % 8));
      const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
      const char flipped = static_cast<char>(good[i] ^ mask);
      REQUIRE(::pwrite(file, &flipped, 1, static_cast<off_t>(i)) == 1);
      accepted += verbs().verify(folder.path.c_str(), "small", nullptr) == FRT_OK ? 1 : 0;
      const frt_error error =
          caught([&] { (void)arena.capsules.load(folder.path, "small", FRT_SPACE_HOST); });
      loaded += error.code == FRT_OK ? 1 : 0;
      REQUIRE(::pwrite(file, &good[i], 1, static_cast<off_t>(i)) == 1);
      ::close(file);
    }
  }
  CHECK(accepted == 0);
  CHECK(loaded == 0);
  MESSAGE("flips: ", good.size() * bits);
  verify_capsule(verbs(), folder.path, "small");
  CHECK(arena.capsules.usage(FRT_SPACE_HOST).used_bytes == 0);
}

TEST_CASE("every truncation and every longer file is detected") {
  const DeviceRig rig;
  if (!rig.mock) return;
  const TemporaryFolder folder;
  std::mt19937_64 random(11);
  const Deployment arena(rig, small_shape());
  arena.live(0, 21, random);
  ready(arena.capsules, 21, arena.stream).save(folder.path, "small", "metadata");
  const std::string path = folder.path + "/small.capsule", good = read_file(path);
  uint64_t accepted = 0;
  for (std::size_t length = good.size(); length-- > 0;) {
    REQUIRE(::truncate(path.c_str(), static_cast<off_t>(length)) == 0);
    accepted += verbs().verify(folder.path.c_str(), "small", nullptr) == FRT_OK ? 1 : 0;
    accepted += verbs().describe(folder.path.c_str(), "small", nullptr, nullptr, nullptr, nullptr,
                                 nullptr) == FRT_OK
                    ? 1
                    : 0;
  }
  for (const std::size_t more : {1, 32, 4096}) {
    write_file(path, good + std::string(more, '\0'));
    accepted += verbs().verify(folder.path.c_str(), "small", nullptr) == FRT_OK ? 1 : 0;
  }
  CHECK(accepted == 0);
  MESSAGE("truncations: ", good.size());
}

TEST_CASE("a file of another model, weights, plugin, configuration or arena is refused by field") {
  const DeviceRig rig;
  if (!rig.mock) return;
  const TemporaryFolder folder;
  std::mt19937_64 random(13);
  const Deployment arena(rig, small_shape());
  arena.live(0, 21, random);
  ready(arena.capsules, 21, arena.stream).save(folder.path, "c", "");
  const auto refuses = [&](const Deployment& other, const char* text) {
    CHECK_FAILS(FRT_ERR_MISMATCH, text,
                (void)other.capsules.load(folder.path, "c", FRT_SPACE_HOST));
    CHECK(other.capsules.usage(FRT_SPACE_HOST).used_bytes == 0);
  };
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    auto fields = kFields;
    fields[i].value = "other";
    const std::string text =
        std::string(kFields[i].name) + ": here other, stored " + kFields[i].value;
    refuses(Deployment(rig, small_shape(), fields), text.c_str());
  }
  auto fields = kFields;
  fields.pop_back();
  refuses(Deployment(rig, small_shape(), fields), "model.chunk: stored 8, not here");
  fields = kFields;
  fields.push_back({"model.new", "1"});
  refuses(Deployment(rig, small_shape(), fields), "model.new: here 1, not stored");

  Shape shape = small_shape();
  shape.page_rows = 8;
  refuses(Deployment(rig, shape), "arena.page_rows: here 8, stored 4");
  shape = small_shape();
  shape.regions[1].row_bytes = 8;
  refuses(Deployment(rig, shape), "arena.regions");
  shape = small_shape();
  shape.regions[2].row_lag = 0;
  refuses(Deployment(rig, shape), "arena.regions");

  // More room is the same model; less is too little for this boundary.
  shape = small_shape();
  shape.slots = 5;
  for (auto& region : shape.regions) region.max_rows = region.kind == FRT_REGION_ROWS ? 99 : 1;
  const Deployment larger(rig, shape);
  CHECK(larger.capsules.load(folder.path, "c", FRT_SPACE_HOST).boundary() == 21);
  for (auto& region : shape.regions) region.max_rows = region.kind == FRT_REGION_ROWS ? 20 : 1;
  const Deployment smaller(rig, shape);
  CHECK_FAILS(FRT_ERR_OUT_OF_RANGE, "boundary 21, but region 'keys' has 20 rows",
              (void)smaller.capsules.load(folder.path, "c", FRT_SPACE_HOST));
}

TEST_CASE("a file of another build is loaded, and the capsule and its copies say of which") {
  const DeviceRig rig;
  if (!rig.mock) return;
  const TemporaryFolder folder;
  std::mt19937_64 random(14);
  const auto with_builds = [](const std::vector<frt_fingerprint_field>& builds) {
    auto fields = kFields;
    fields.insert(fields.begin() + 1, builds.begin(), builds.end());
    return fields;
  };
  const Deployment arena(rig, small_shape(),
                         with_builds({{"build.plugin.file", "aa11"}, {"build.device", "sm_90"}}));
  arena.live(0, 21, random);
  const Capsule kept = ready(arena.capsules, 21, arena.stream);
  kept.save(folder.path, "c", "");
  CHECK(kept.other_build().empty());
  CHECK(arena.capsules.load(folder.path, "c", FRT_SPACE_HOST).other_build().empty());

  const Deployment rebuilt(rig, small_shape(),
                           with_builds({{"build.plugin.file", "cc33"}, {"build.device", "sm_90"}}));
  const Capsule loaded = rebuilt.capsules.load(folder.path, "c", FRT_SPACE_HOST);
  CHECK(loaded.read() == kept.read());
  CHECK(loaded.other_build() == "build.plugin.file: here cc33, stored aa11");
  const Capsule copied = loaded.copy(FRT_SPACE_DEVICE, rebuilt.stream);
  CHECK(copied.other_build() == loaded.other_build());
  loaded.save(folder.path, "again", "");
  const Capsule twice = rebuilt.capsules.load(folder.path, "again", FRT_SPACE_HOST);
  CHECK(twice.other_build() == loaded.other_build());
  CHECK(arena.capsules.load(folder.path, "again", FRT_SPACE_HOST).other_build().empty());
  const Deployment untold(rig, small_shape());
  CHECK(untold.capsules.load(folder.path, "c", FRT_SPACE_HOST).other_build() ==
        "build.plugin.file: stored aa11, not here\nbuild.device: stored sm_90, not here");

  // The layout is checked whatever the build is.
  Shape shape = small_shape();
  shape.regions[1].row_bytes = 8;
  const Deployment wider(rig, shape, with_builds({{"build.plugin.file", "cc33"}}));
  CHECK_FAILS(FRT_ERR_MISMATCH, "arena.regions",
              (void)wider.capsules.load(folder.path, "c", FRT_SPACE_HOST));

  const std::string text(257, 'x');
  const Arena wordy(rig, small_shape());
  wordy.capsules.bind(std::vector<frt_fingerprint_field>{{"build.plugin.file", text.c_str()}});
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "256 bytes", wordy.capsules.fingerprint());
}

TEST_CASE(
    "a slot remembers that another build computed a part of it, through forks, until it ends") {
  const DeviceRig rig;
  if (!rig.mock) return;
  const TemporaryFolder folder;
  for (const uint32_t page_rows : {0u, 4u}) {
    CAPTURE(page_rows);
    std::mt19937_64 random(15);
    Shape shape = small_shape();
    shape.page_rows = page_rows;
    shape.slots = 4;
    auto fields = kFields;
    fields.push_back({"build.plugin.file", "aa11"});
    const Deployment before(rig, shape, fields);
    before.live(0, 21, random);
    ready(before.capsules, 21, before.stream).save(folder.path, "c", "", FRT_CAPSULE_REPLACE);
    fields.back().value = "cc33";
    const Deployment here(rig, shape, fields);
    const Capsule loaded = here.capsules.load(folder.path, "c", FRT_SPACE_HOST);
    const std::string difference = "build.plugin.file: here cc33, stored aa11";
    const auto origin = [&](uint32_t slot, uint64_t boundary) {
      const Capsule taken = here.capsules.snapshot(slot, boundary, FRT_SPACE_HOST, here.stream);
      taken.sync();
      return std::string(taken.other_build());
    };
    loaded.restore(0, here.stream);
    CHECK(origin(0, 21) == difference);
    here.state.reserve(0, 21, 23, here.stream);
    CHECK(origin(0, 23) == difference);
    here.capsules.fork_slot(0, 23, std::vector<uint32_t>{1}, here.stream);
    CHECK(origin(1, 23) == difference);
    const Capsule mixed = ready(here.capsules, 23, here.stream);
    mixed.fork(std::vector<uint32_t>{2, 3}, here.stream);
    CHECK(origin(3, 23) == difference);

    // Its file is of another build to both, and what goes on from it, too.
    mixed.save(folder.path, "mixed", "", FRT_CAPSULE_REPLACE);
    for (const Deployment* there : {&before, &here}) {
      const Capsule again = there->capsules.load(folder.path, "mixed", FRT_SPACE_HOST);
      // Hosts read the names of the fields in it.
      const std::string lines(again.other_build());
      const std::string own = there == &here ? "" : "build.plugin.file: here aa11, stored cc33\n";
      CHECK(lines.starts_with(own + FRT_FINGERPRINT_CONTINUES ": "));
      CHECK(std::count(lines.begin(), lines.end(), '\n') == (there == &here ? 0 : 1));
      CHECK(again.read() == mixed.read());
      again.restore(2, there->stream);
      const Capsule taken = there->capsules.snapshot(2, 23, FRT_SPACE_HOST, there->stream);
      taken.sync();
      taken.save(folder.path, "more", "", FRT_CAPSULE_REPLACE);
      CHECK_FALSE(here.capsules.load(folder.path, "more", FRT_SPACE_HOST).other_build().empty());
      CHECK_FALSE(before.capsules.load(folder.path, "more", FRT_SPACE_HOST).other_build().empty());
    }

    // It ends with what was in the slot.
    here.state.clear(0, here.stream);
    CHECK(origin(0, 0).empty());
    here.live(0, 5, random);
    const Capsule clean = ready(here.capsules, 5, here.stream);
    CHECK(clean.other_build().empty());
    clean.restore(1, here.stream);
    CHECK(origin(1, 5).empty());
    here.capsules.fork_slot(0, 5, std::vector<uint32_t>{3}, here.stream);
    CHECK(origin(3, 5).empty());
    CHECK_FALSE(origin(2, 23).empty());
  }
  const Arena own(rig, small_shape());
  own.capsules.bind(std::vector<frt_fingerprint_field>{{FRT_FINGERPRINT_CONTINUES, "1"}});
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "core's own", own.capsules.fingerprint());
}

TEST_CASE("without a fingerprint nothing is saved or loaded") {
  const DeviceRig rig;
  if (!rig.mock) return;
  const TemporaryFolder folder;
  std::mt19937_64 random(17);
  const Arena arena(rig, small_shape());
  arena.live(0, 3, random);
  const Capsule capsule = ready(arena.capsules, 3, arena.stream);
  CHECK_FAILS(FRT_ERR_BAD_STATE, "bind its fields", capsule.save(folder.path, "c", ""));
  arena.capsules.bind(kFields);
  CHECK_FAILS(FRT_ERR_BAD_STATE, "call fingerprint()", capsule.save(folder.path, "c", ""));
  CHECK_FAILS(FRT_ERR_EXISTS, "bound", arena.capsules.bind(kFields));
  arena.capsules.fingerprint();
  capsule.save(folder.path, "c", "");
  const std::vector<frt_fingerprint_field> twice = {{"a", "1"}, {"a", "2"}};
  const Arena other(rig, small_shape());
  CHECK_FAILS(FRT_ERR_EXISTS, "'a' is given twice", other.capsules.bind(twice));
  CHECK(names_in(folder.path) == std::set<std::string>{"c.capsule"});
}

TEST_CASE("only capsules that the host can read and that are complete can be saved") {
  const DeviceRig rig(0);
  const TemporaryFolder folder;
  const Deployment arena(rig, small_shape());
  const Capsule device = arena.capsules.snapshot(0, 0, FRT_SPACE_DEVICE, arena.stream);
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "copy it to a host space", device.save(folder.path, "c", ""));
  const Capsule pending = arena.capsules.snapshot(0, 0, FRT_SPACE_HOST, arena.stream);
  CHECK_FAILS(FRT_ERR_NOT_READY, "wait for it", pending.save(folder.path, "c", ""));
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "host space",
              (void)arena.capsules.load(folder.path, "c", FRT_SPACE_DEVICE));
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("a name is taken once unless it is to be replaced") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  std::mt19937_64 random(19);
  const Deployment arena(rig, small_shape());
  arena.live(0, 9, random);
  ready(arena.capsules, 5, arena.stream).save(folder.path, "c", "one");
  const Capsule second = ready(arena.capsules, 9, arena.stream);
  CHECK_FAILS(FRT_ERR_EXISTS, "choose another name", second.save(folder.path, "c", "two"));
  CHECK(describe_capsule(verbs(), folder.path, "c").metadata == "one");
  second.save(folder.path, "c", "two", FRT_CAPSULE_REPLACE);
  CHECK(describe_capsule(verbs(), folder.path, "c").metadata == "two");
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "unknown flags 2", second.save(folder.path, "d", "", 2));
  CHECK(names_in(folder.path) == std::set<std::string>{"c.capsule"});
  remove_capsule(verbs(), folder.path, "c");
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "c.capsule", remove_capsule(verbs(), folder.path, "c"));
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("no path can be made from a name, and no link is followed") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  const Deployment arena(rig, small_shape());
  const Capsule capsule = ready(arena.capsules, 0, arena.stream);
  const std::string inside = folder.path + "/inside";
  for (const std::string& name :
       {std::string(""), std::string("../c"), std::string("a/b"), std::string("/etc/passwd"),
        std::string(".hidden"), std::string(".."), std::string("-c"), std::string("_c"),
        std::string("a b"), std::string("a\nb"), std::string("\xC3\xA4"), std::string("a\\b"),
        std::string(129, 'a')}) {
    CAPTURE(name);
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "no name of a capsule", capsule.save(inside, name, ""));
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "no name of a capsule",
                verify_capsule(verbs(), inside, name));
    CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "no name of a capsule",
                remove_capsule(verbs(), inside, name));
  }
  CHECK_FALSE(fs::exists(inside));
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "no folder", capsule.save("", "c", ""));
  for (const std::string& name :
       {std::string("a"), std::string("A.b_c-9"), std::string(128, 'a')}) {
    capsule.save(inside, name, "");
    verify_capsule(verbs(), inside, name);
  }
  fs::create_symlink(inside + "/a.capsule", inside + "/link.capsule");
  CHECK_FAILS(FRT_ERR_IO, "link", verify_capsule(verbs(), inside, "link"));
  const std::string outside = folder.path + "/outside";
  write_file(outside, "untouched");
  fs::create_symlink(outside, inside + "/target.capsule");
  CHECK_FAILS(FRT_ERR_EXISTS, "there already", capsule.save(inside, "target", ""));
  capsule.save(inside, "target", "", FRT_CAPSULE_REPLACE);
  CHECK(read_file(outside) == "untouched");
  CHECK(fs::is_regular_file(fs::symlink_status(inside + "/target.capsule")));
  fs::create_directory(inside + "/folder.capsule");
  CHECK_FAILS(FRT_ERR_IO, "no regular file", verify_capsule(verbs(), inside, "folder"));
  const auto listed = list_capsules(verbs(), inside);
  CHECK(std::set<std::string>(listed.begin(), listed.end()) ==
        std::set<std::string>{"a", "A.b_c-9", std::string(128, 'a'), "target"});
  CHECK(list_capsules(verbs(), folder.path + "/none").empty());
}

TEST_CASE("files are private, whatever the process masks out, and so are new folders") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  const Deployment arena(rig, small_shape());
  const std::string inside = folder.path + "/inside";
  const mode_t mask = ::umask(0);
  ready(arena.capsules, 0, arena.stream).save(inside, "c", "");
  ::umask(mask);
  const auto mode = [](const std::string& path) {
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    return info.st_mode & 07777;
  };
  CHECK(mode(inside) == 0700);
  CHECK(mode(inside + "/c.capsule") == 0600);
  fs::permissions(inside, fs::perms(0777));
  CHECK_FAILS(FRT_ERR_IO, "chmod 700",
              ready(arena.capsules, 0, arena.stream).save(inside, "d", ""));
  CHECK_FALSE(fs::exists(inside + "/d.capsule"));
}

TEST_CASE("a full disk, a folder without permission and a missing one are said, nothing is left") {
  const DeviceRig rig;
  const TemporaryFolder folder;
  const Deployment arena(rig, small_shape());
  const Capsule capsule = ready(arena.capsules, 0, arena.stream);
  for (const uint64_t bytes : {0u, 100u, 4096u, 4200u}) {
    with_small_files(
        bytes, [&] { CHECK_FAILS(FRT_ERR_IO, "ulimit -f", capsule.save(folder.path, "c", "")); });
    CHECK(names_in(folder.path).empty());
  }
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "cannot make the folder",
              capsule.save(folder.path + "/a/b", "c", ""));
  if (::geteuid() == 0) return;  // nothing is denied to root
  fs::permissions(folder.path, fs::perms(0500));
  CHECK_FAILS(FRT_ERR_IO, "choose a folder that this user may write to",
              capsule.save(folder.path, "c", ""));
  fs::permissions(folder.path, fs::perms(0700));
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("sweeping removes what dead writers left and spares living ones and everything else") {
  const TemporaryFolder folder;
  write_file(folder.path + "/.tmp-capsule-1-2", "left");
  write_file(folder.path + "/.tmp-capsule-1-3", "in use");
  write_file(folder.path + "/.tmp-other", "not ours");
  write_file(folder.path + "/c.capsule", "a capsule");
  const int living = ::open((folder.path + "/.tmp-capsule-1-3").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(living, LOCK_EX) == 0);
  CHECK(sweep_capsules(verbs(), folder.path) == 1);
  CHECK(names_in(folder.path) ==
        std::set<std::string>{".tmp-capsule-1-3", ".tmp-other", "c.capsule"});
  ::close(living);
  CHECK(sweep_capsules(verbs(), folder.path) == 1);
  CHECK(sweep_capsules(verbs(), folder.path + "/none") == 0);
}

TEST_CASE("a manifest that a liar wrote and signed is not believed") {
  // The root digest protects against accidents; whoever writes files can compute it, too. So every
  // number of a file is checked against the arena.
  const DeviceRig rig;
  if (!rig.mock) return;
  const TemporaryFolder folder;
  std::mt19937_64 random(23);
  const Deployment arena(rig, small_shape());
  arena.live(0, 21, random);
  ready(arena.capsules, 21, arena.stream).save(folder.path, "c", "md");
  const std::string path = folder.path + "/c.capsule", good = read_file(path);
  const auto u64 = [&](const std::string& file, std::size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, &file[at], 8);
    return value;
  };
  const auto set = [](std::string& file, std::size_t at, uint64_t value) {
    std::memcpy(&file[at], &value, 8);
  };
  // The file with another manifest, everything else made to fit.
  const auto forge = [&](const std::string& manifest, uint64_t payload_bytes) {
    const uint64_t old_manifest = u64(good, 24), metadata = u64(good, 32), offset = u64(good, 40);
    std::string head = good.substr(0, 64) + manifest + good.substr(64 + old_manifest, metadata);
    std::string payload = good.substr(offset, u64(good, 48));
    payload.resize(payload_bytes, 'x');
    const uint64_t start = (head.size() + 4095) / 4096 * 4096;
    core::Sha256 chunk;
    chunk.update(payload.data(), payload.size());
    const auto digest = chunk.finish_bytes();
    set(head, 16, start + payload.size() + 32 + 32 + 8);
    set(head, 24, manifest.size());
    set(head, 40, start);
    set(head, 48, payload_bytes);
    core::Sha256 root;
    root.update(head.data(), head.size());
    root.update(digest.data(), digest.size());
    const auto sum = root.finish_bytes();
    std::string file = head;
    file.resize(start, '\0');
    file += payload;
    file.append(digest.begin(), digest.end());
    file.append(sum.begin(), sum.end());
    file += "FRTCAPS\n";
    write_file(path, file);
  };
  const std::string manifest = good.substr(64, u64(good, 24));
  const uint64_t bytes = u64(good, 48);
  forge(manifest, bytes);
  CHECK(arena.capsules.load(folder.path, "c", FRT_SPACE_HOST).boundary() == 21);

  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = manifest;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const auto refused = [&](frt_status status, const char* part, const std::string& text,
                           uint64_t payload_bytes) {
    CAPTURE(text);
    forge(text, payload_bytes);
    CHECK_FAILS(status, part, (void)arena.capsules.load(folder.path, "c", FRT_SPACE_HOST));
  };
  refused(FRT_ERR_FORMAT, "another arrangement", replaced("\"boundary\":21", "\"boundary\":20"),
          bytes);
  refused(FRT_ERR_OUT_OF_RANGE, "boundary 4000000000",
          replaced("\"boundary\":21", "\"boundary\":4000000000"), bytes);
  refused(FRT_ERR_OUT_OF_RANGE, "boundary 18446744073709551615",
          replaced("\"boundary\":21", "\"boundary\":18446744073709551615"), bytes);
  refused(FRT_ERR_FORMAT, "canonical", replaced("\"boundary\":21", "\"boundary\":-1"), bytes);
  refused(FRT_ERR_FORMAT, "contradicts", manifest, bytes + 1);
  refused(FRT_ERR_FORMAT, "another arrangement",
          replaced("\"bytes\":" + std::to_string(bytes), "\"bytes\":" + std::to_string(bytes + 1)),
          bytes + 1);
  refused(FRT_ERR_FORMAT, "another arrangement", replaced("\"rows\":21", "\"rows\":22"), bytes);
  refused(FRT_ERR_FORMAT, "canonical", replaced("\"boundary\":21", "\"boundary\": 21"), bytes);
  refused(FRT_ERR_FORMAT, "canonical", replaced("\"boundary\":21", "\"boundary\":21.0"), bytes);
  refused(FRT_ERR_FORMAT, "canonical", replaced("\"boundary\":21", "\"boundary\":2.1e1"), bytes);
  refused(FRT_ERR_FORMAT, "fingerprint", replaced("\"value\":\"tiny\"", "\"value\":\"huge\""),
          bytes);
  // A fingerprint of no fields, and no list of fields.
  const std::size_t fields = manifest.find("\"fingerprint\":[");
  const std::size_t digest = manifest.find("\"fingerprint_sha256\":\"");
  const std::size_t behind = manifest.find("\",", digest) + 2;
  for (const char* text : {"", "\"fingerprint\":{},", "\"fingerprint\":7,", "\"fingerprint\":[7],",
                           "\"fingerprint\":[[]],"}) {
    refused(FRT_ERR_FORMAT, "lacks a member",
            manifest.substr(0, fields) + text + "\"fingerprint_sha256\":\"" +
                core::Fingerprint().hex() + "\"," + manifest.substr(behind),
            bytes);
  }
  refused(FRT_ERR_FORMAT, "nested", std::string(100000, '['), bytes);
  refused(FRT_ERR_FORMAT, "lacks a member", "[]", bytes);
  refused(FRT_ERR_FORMAT, "lacks a member", "{}", bytes);
  refused(FRT_ERR_FORMAT, "syntax error", "", bytes);
  refused(FRT_ERR_FORMAT, "syntax error", manifest.substr(0, 100), bytes);

  // Lengths in the header that add up to nonsense.
  for (const std::size_t at : {16, 24, 32, 40, 48}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{1}, UINT64_MAX, UINT64_MAX / 2,
                                 UINT64_MAX - 63, uint64_t{1} << 32, uint64_t{good.size()}}) {
      std::string file = good;
      if (u64(file, at) == value) continue;
      set(file, at, value);
      write_file(path, file);
      CHECK(verbs().verify(folder.path.c_str(), "c", nullptr) == FRT_ERR_FORMAT);
    }
  }
  std::string newer = good;
  newer[8] = 2;
  write_file(path, newer);
  CHECK_FAILS(FRT_ERR_UNSUPPORTED, "version 2", verify_capsule(verbs(), folder.path, "c"));
}

}  // namespace frt::test
