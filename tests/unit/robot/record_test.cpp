// SPDX-License-Identifier: Apache-2.0
// Records: what is written is read back; files that are cut or changed are refused.
#include <doctest/doctest.h>

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <frt/error.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "robot/record/crc32.hpp"
#include "robot/record/episode.hpp"
#include "robot/record/episode_folder.hpp"
#include "robot/record/mcap.hpp"
#include "robot/record/npz.hpp"

using namespace frt::host;

namespace {

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "frt-record-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
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
      record.add_tick(200 + i, 3, chunk, i == 1, std::span<const double>(actions).subspan(0, 1));
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

TEST_CASE("a record whose sizes are impossible is refused") {
  const Folder folder;
  example().write_npz(folder.path / "e.npz");
  NpzArrays arrays = read_npz(folder.path / "e.npz");
  const std::string meta = arrays.at("meta").data;
  for (const char* size : {"0", "-1", "2.5", "4294967298", "1e10", "\"2\""}) {
    CAPTURE(size);
    std::string changed = meta;
    const std::string key = "\"horizon\":";
    const std::size_t at = changed.find(key) + key.size();
    changed.replace(at, changed.find(',', at) - at, size);
    arrays.at("meta") = npy_text(changed);
    write_npz(folder.path / "changed.npz", arrays);
    CHECK_THROWS_AS(EpisodeRecord::read(folder.path / "changed.npz"), frt::Error);
  }
}
