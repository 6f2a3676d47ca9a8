// SPDX-License-Identifier: Apache-2.0
// Records: what is written is read back; files that are cut or changed are refused.
#include <doctest/doctest.h>

#include <filesystem>
#include <frt/error.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "../scratch_folder.hpp"
#include "cases.hpp"
#include "json_mutation.hpp"
#include "robot/record/crc32.hpp"
#include "robot/record/episode.hpp"
#include "robot/record/episode_folder.hpp"
#include "robot/record/mcap.hpp"
#include "robot/record/npz.hpp"

using namespace frt::host;

namespace {

// In memory where the system has such a file system: records are flushed to the disk.
struct Folder : frt::test::ScratchFolder {
  Folder() : ScratchFolder(std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp") {}
};

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

EpisodeRecord example() {
  static const uint8_t pixels[2 * 2 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  static const float state[2] = {0.5f, -1};
  frt_array arrays[2]{};
  arrays[0] = {"observation/image", pixels, FRT_DTYPE_U8, 3, {2, 2, 3, 0}};
  arrays[1] = {"observation/state", state, FRT_DTYPE_F32, 1, {2, 0, 0, 0}};
  frt_observation observation{};
  observation.struct_size = sizeof(observation);
  observation.array_count = 2;
  observation.arrays = arrays;
  EpisodeMeta meta;
  meta.seed = 7;
  meta.policy = "p";
  meta.prompt = "reach the red disc";
  meta.horizon = 2;
  meta.action_dim = 1;
  meta.network_dim = 3;
  meta.fingerprints = {{"model", "x"}};
  EpisodeRecord record;
  record.begin(meta, 4, 16);
  const float noise[6] = {0, 1, 2, 3, 4, 5}, network[6] = {5, 4, 3, 2, 1, 0.1f};
  const double actions[2] = {0.1, -0.2};
  for (int chunk = 0; chunk < 2; ++chunk) {
    record.add_observation(observation, noise, chunk * 2);
    record.add_chunk(network, actions, -0.5f, {100 + chunk, 101, 102});
    for (int i = 0; i < 2; ++i) {
      record.add_tick(200 + i, 3, chunk, i == 1, std::span<const double>(actions).subspan(0, 1),
                      0.25);
    }
  }
  record.add_observation(observation, noise, 4);  // its chunk never came
  record.end("success", true);
  return record;
}

}  // namespace

TEST_CASE("the checksum is that of zip and MCAP") {
  CHECK(crc32("123456789") == 0xCBF43926u);
  CHECK(crc32("6789", crc32("12345")) == 0xCBF43926u);
}

TEST_CASE("an episode is read back as it was written") {
  const Folder folder;
  const EpisodeRecord written = example();
  written.write_npz(folder.path / "e.npz");
  const EpisodeRecord read = EpisodeRecord::read(folder.path / "e.npz");
  CHECK(read.chunks() == 2);
  CHECK(read.meta().prompt == "reach the red disc");
  CHECK(read.meta().stop_reason == "success");
  CHECK(read.meta().success);
  CHECK(read.meta().seed == 7);
  CHECK(read.meta().fingerprints["model"] == "x");
  const auto arrays = read.observation(1);
  REQUIRE(arrays.size() == 2);
  CHECK(std::string(arrays[0].name) == "observation/image");
  CHECK(arrays[0].shape[2] == 3);
  CHECK(static_cast<const uint8_t*>(arrays[0].data)[11] == 12);
  CHECK(static_cast<const float*>(arrays[1].data)[1] == -1);
  CHECK(read.noise(1)[5] == 5);
  CHECK(read.network_actions(0)[5] == 0.1f);
  CHECK(read.actions(1)[1] == -0.2);
}

TEST_CASE("an episode file that is cut or changed is refused or read, never more") {
  const Folder folder;
  example().write_npz(folder.path / "e.npz");
  const std::string bytes = content(folder.path / "e.npz");
  const auto parses = [](const std::string& text) {
    try {
      parse_npz(text, "test");
      return true;
    } catch (const frt::Error&) {
      return false;
    }
  };
  CHECK(parses(bytes));
  for (std::size_t cut = 0; cut < bytes.size(); cut += 7) CHECK_FALSE(parses(bytes.substr(0, cut)));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = bytes;
    changed[random() % changed.size()] = static_cast<char>(random());
    parses(changed);
  }
  std::string data = bytes;
  data[data.find("NUMPY") + 130] ^= 1;  // in a member's data
  CHECK_FALSE(parses(data));
}

namespace {

using Json = nlohmann::ordered_json;

NpzArrays arrays_of(const EpisodeRecord& record, const std::filesystem::path& path) {
  record.write_npz(path);
  return parse_npz(content(path), "test");
}

// Why an episode of these arrays is refused; "": it is not.
std::string refusal(const NpzArrays& arrays, const std::filesystem::path& path) {
  write_npz(path, arrays);
  try {
    EpisodeRecord::read(path);
    return {};
  } catch (const frt::Error& error) {
    CHECK(error.status() == FRT_ERR_FORMAT);
    return error.what();
  }
}

void reshape(NpyArray& array, std::vector<uint64_t> shape) {
  const uint64_t width = array.dtype == FRT_DTYPE_F64 || array.dtype == FRT_DTYPE_I64   ? 8
                         : array.dtype == FRT_DTYPE_F32 || array.dtype == FRT_DTYPE_I32 ? 4
                                                                                        : 1;
  array.shape = std::move(shape);
  array.data.resize(array.count() * width);
}

}  // namespace

TEST_CASE("an episode whose numbers and shapes contradict each other is refused") {
  const Folder folder;
  const NpzArrays good = arrays_of(example(), folder.path / "good.npz");
  const auto path = folder.path / "bad.npz";
  CHECK(refusal(good, path) == "");
  const auto meta = [&](const char* name, const Json& value) {
    NpzArrays arrays = good;
    Json json = Json::parse(arrays.at("meta").data);
    json[name] = value;
    arrays.at("meta") = npy_text(json.dump());
    CAPTURE(name);
    CAPTURE(value.dump());
    CHECK(refusal(arrays, path) != "");
  };
  for (const char* name : {"horizon", "action_dim", "network_dim"}) {
    for (const Json& value :
         {Json(0), Json(-1), Json(2.0), Json(2.5), Json("2"), Json(1e10), Json(UINT64_MAX),
          Json(UINT32_MAX), Json((uint64_t{1} << 32) + 2), Json(nullptr)}) {
      meta(name, value);
    }
  }
  meta("episode", -1);
  meta("seed", 1e300);
  meta("steps", uint64_t{1} << 32);
  meta("hz", "fast");
  meta("success", 1);
  meta("beta", "much");
  meta("manifest", nullptr);
  meta("fingerprints", Json::array({1}));
  {
    NpzArrays arrays = good;
    arrays.at("prompt").data[3] = '\0';
    CHECK(refusal(arrays, path).find("prompt") != std::string::npos);
  }
  const auto shape = [&](const char* name, std::vector<uint64_t> to) {
    NpzArrays arrays = good;
    reshape(arrays.at(name), std::move(to));
    CAPTURE(name);
    CHECK(refusal(arrays, path).find(name) != std::string::npos);
  };
  shape("noise", {12});  // as many values, in another shape
  shape("noise", {2, 3, 2});
  shape("noise", {3, 2, 3});  // a chunk more
  shape("network_actions", {1, 2, 3});
  shape("actions", {2, 1, 2});
  shape("values", {2, 1});
  shape("obs/observation/image", {3, 2, 2, 3});
  shape("obs/observation/state", {2, 0});
  shape("obs/observation/state", {2, 1, 1, 1, 1, 1, 1, 1, 1, 2});
  for (const char* name : {"meta", "noise", "values", "network_actions", "actions", "prompt"}) {
    NpzArrays arrays = good;
    arrays.erase(name);
    CHECK(refusal(arrays, path).find(name) != std::string::npos);
  }
}

TEST_CASE(
    "members of an episode file that lie over each other are refused before they are copied") {
  const Folder folder;
  NpzArrays one;
  one.emplace("a", npy_text(std::string(100000, 'x')));
  write_npz(folder.path / "one.npz", one);
  std::string bytes = content(folder.path / "one.npz");
  const std::size_t end = bytes.size() - 22;
  const std::size_t entry = 46 + 5;  // a.npy
  const std::string directory = bytes.substr(end - entry, entry);
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += directory;
    many.replace(many.size() - 5, 5, std::to_string(10000 + i));
  }
  std::string tail = bytes.substr(end);
  tail[8] = tail[10] = static_cast<char>(1000 & 255);
  tail[9] = tail[11] = static_cast<char>(1000 >> 8);
  bytes = bytes.substr(0, end - entry) + many + tail;
  CHECK_THROWS_WITH_AS(parse_npz(bytes, "test"), doctest::Contains("10001 lies over another"),
                       frt::Error);
}

// FRT_RECORD_CASES=1000000 for a long run.
TEST_CASE("an episode that was changed at random is refused or holds together") {
  const Folder folder;
  const NpzArrays good = arrays_of(example(), folder.path / "good.npz");
  const auto path = folder.path / "bad.npz";
  std::mt19937_64 random(73);
  const uint64_t cases = frt::test::number_from("FRT_RECORD_CASES", 1500);
  uint64_t read = 0;
  for (uint64_t i = 0; i < cases; ++i) {
    CAPTURE(i);
    NpzArrays arrays = good;
    for (uint64_t changes = 1 + random() % 2; changes > 0; --changes) {
      const auto at =
          std::next(arrays.begin(), static_cast<std::ptrdiff_t>(random() % arrays.size()));
      switch (random() % 4) {
        case 0: {
          Json json =
              Json::parse(arrays.contains("meta") ? arrays.at("meta").data : "{}", nullptr, false);
          frt::test::mutate(json, random);
          arrays["meta"] = npy_text(json.dump());
          break;
        }
        case 1:
          if (!at->second.shape.empty()) {
            std::vector<uint64_t> shape = at->second.shape;
            shape[random() % shape.size()] = random() % 4;
            reshape(at->second, std::move(shape));
          }
          break;
        case 2:
          if (arrays.size() > 1) arrays.erase(at);
          break;
        default:
          at->second.dtype = random() % 2 ? FRT_DTYPE_F64 : FRT_DTYPE_I32;
          reshape(at->second, at->second.shape);
      }
    }
    write_npz(path, arrays);
    try {
      const EpisodeRecord record = EpisodeRecord::read(path);
      ++read;
      const std::size_t rows = record.meta().horizon;
      for (std::size_t chunk = 0; chunk < record.chunks(); ++chunk) {
        CHECK(record.noise(chunk).size() == rows * record.meta().network_dim);
        CHECK(record.actions(chunk).size() == rows * record.meta().action_dim);
        CHECK(record.network_actions(chunk).size() == record.noise(chunk).size());
        for (const frt_array& array : record.observation(chunk)) {
          uint64_t values = 1;
          for (uint32_t d = 0; d < array.rank; ++d) values *= static_cast<uint64_t>(array.shape[d]);
          const auto* data = static_cast<const volatile unsigned char*>(array.data);
          (void)data[values * frt::dtype_bits(array.dtype) / 8 - 1];
        }
      }
    } catch (const frt::Error& error) {
      CHECK((error.status() == FRT_ERR_FORMAT || error.status() == FRT_ERR_UNSUPPORTED));
    }
  }
  CHECK(read > cases / 100);
  CHECK(read < cases);
}

TEST_CASE("an MCAP file is complete up to its last chunk before it is closed") {
  const Folder folder;
  McapWriter writer(folder.path / "e.mcap");
  const uint16_t topic = writer.add_channel("/a", "A", "{}");
  writer.write(topic, 5, "{\"x\":1}");
  writer.flush();
  const std::string open = content(folder.path / "e.mcap");
  CHECK(open.starts_with("\x89MCAP0\r\n"));
  CHECK(open.find("{\"x\":1}") != std::string::npos);
  writer.write(topic, 6, "{\"x\":2}");
  writer.close();
  const std::string closed = content(folder.path / "e.mcap");
  CHECK(closed.starts_with(open));
  CHECK(closed.ends_with("\x89MCAP0\r\n"));
}

TEST_CASE("an episode becomes an MCAP file with a topic per array") {
  const Folder folder;
  example().write_mcap(folder.path / "e.mcap");
  const std::string bytes = content(folder.path / "e.mcap");
  for (const char* topic :
       {"/observation/image", "/observation/state", "/chunk", "/action", "/value"}) {
    CHECK(bytes.find(topic) != std::string::npos);
  }
  CHECK(bytes.find("foxglove.RawImage") != std::string::npos);
  CHECK(bytes.find("AQIDBAUGBwgJCgsM") != std::string::npos);  // the pixels in base64
}

TEST_CASE("an MCAP file has the images of every tick where they were recorded") {
  const auto images = [](bool frames) {
    static uint8_t pixels[2 * 2 * 3] = {};
    frt_array array = {"cam", pixels, FRT_DTYPE_U8, 3, {2, 2, 3, 0}};
    frt_observation observation{};
    observation.struct_size = sizeof(observation);
    observation.array_count = 1;
    observation.arrays = &array;
    EpisodeMeta meta;
    meta.horizon = meta.action_dim = meta.network_dim = 1;
    EpisodeRecord record;
    record.begin(meta, 1, 5);
    const float value[1] = {0};
    const double action[1] = {0};
    record.add_observation(observation, value, 0);
    record.add_chunk(value, action, 0, {100, 101, 102});
    for (int i = 0; i < 5; ++i) {
      pixels[0] = static_cast<uint8_t>(i);
      if (frames) record.add_frame(observation);
      record.add_tick(200 + i, 0, 0, false, action, 0);
    }
    record.end("success", true);
    const Folder folder;
    record.write_mcap(folder.path / "e.mcap");
    const std::string bytes = content(folder.path / "e.mcap");
    std::size_t count = 0;
    for (std::size_t at = bytes.find("\"rgb8\""); at != bytes.npos;
         at = bytes.find("\"rgb8\"", at + 1)) {
      ++count;
    }
    return count;
  };
  CHECK(images(true) == 5);
  CHECK(images(false) == 1);
}

TEST_CASE("a record never takes the place of another one") {
  const Folder folder;
  const EpisodeRecord record = example();
  EpisodeFolder one(folder.path / "records"), two(folder.path / "records");
  CHECK(one.write(record) == 0);
  CHECK(two.write(record) == 1);  // it did not know of the other one
  CHECK(one.write(record) == 2);
  std::ofstream(folder.path / "records/episode_000009.npz") << "somebody else's";
  std::ofstream(folder.path / "records/episode_99999999999999999999.npz") << "no number";
  EpisodeFolder three(folder.path / "records");
  CHECK(three.next() == 10);
  CHECK(three.write(record) == 10);
  CHECK(content(folder.path / "records/episode_000009.npz") == "somebody else's");
  CHECK(EpisodeRecord::read(folder.path / "records/episode_000010.npz").chunks() == 2);
  CHECK(three.path_to(folder.path / "robot.toml") == "../robot.toml");
}

TEST_CASE("an episode whose meta data are nested deeply is refused") {
  const Folder folder;
  const auto path = folder.path / "deep.npz";
  for (const std::size_t levels : {300'000, 2'000'000}) {
    const std::string deep =
        "{\"fingerprints\":" + std::string(levels, '[') + std::string(levels, ']') + "}";
    write_npz(path, {{"meta", npy_text(deep)}});
    CHECK_THROWS_WITH_AS(EpisodeRecord::read(path), doctest::Contains("nested deeper than"),
                         frt::Error);
  }
}
