// SPDX-License-Identifier: Apache-2.0
// A checkpoint of one file, of shards with their index, of several files, and its sidecar.
#include <frt/models/safetensors.hpp>
#include <frt/models/safetensors_writer.hpp>
#include <frt/models/sha256.hpp>

#include <algorithm>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

// A file with one U8 tensor of two elements per name; the data of "x" is {'x', 'x'}.
void make(const std::filesystem::path& path, std::initializer_list<const char*> names) {
  SafetensorsWriter writer(path);
  for (const char* name : names) writer.declare(name, FRT_DTYPE_U8, {2});
  for (const char* name : names) {
    const std::string data(2, name[0]);
    writer.write(name, std::as_bytes(std::span(data)));
  }
  writer.finish();
}

std::string text_of(const TensorView& tensor) {
  const std::vector<std::byte> data = tensor.read();
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

std::string names_of(const Checkpoint& checkpoint) {
  std::string names;
  for (const TensorView& tensor : checkpoint.tensors()) {
    names.append(names.empty() ? "" : " ").append(tensor.name);
  }
  return names;
}

}  // namespace

TEST_CASE("a folder with model.safetensors is that file and the sidecar, nothing else") {
  const ScratchFolder folder;
  make(folder / "model.safetensors", {"b", "a"});
  make(folder / "goldens.safetensors", {"a", "z"});
  CHECK(names_of(Checkpoint::open(folder.path())) == "a b");
  make(folder / "mtp.safetensors", {"m"});
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  CHECK(names_of(checkpoint) == "a b m");
  CHECK(checkpoint.files().size() == 2);
  CHECK(checkpoint.bytes() == 6);
  CHECK(text_of(checkpoint.get("m")) == "mm");
}

TEST_CASE("a path to a file is that file alone") {
  const ScratchFolder folder;
  make(folder / "model.safetensors", {"a"});
  make(folder / "mtp.safetensors", {"m"});
  CHECK(names_of(Checkpoint::open(folder / "model.safetensors")) == "a");
}

TEST_CASE("an index names the shards, and the sidecar joins them") {
  const ScratchFolder folder;
  make(folder / "model-00001-of-00002.safetensors", {"a", "b"});
  make(folder / "model-00002-of-00002.safetensors", {"c"});
  make(folder / "other.safetensors", {"a", "x"});
  write_safetensors_index(folder / "model.safetensors.index.json",
                          {{"a", "model-00001-of-00002.safetensors"},
                           {"b", "model-00001-of-00002.safetensors"},
                           {"c", "model-00002-of-00002.safetensors"}},
                          6);
  CHECK(names_of(Checkpoint::open(folder.path())) == "a b c");
  make(folder / "mtp.safetensors", {"m"});
  CHECK(names_of(Checkpoint::open(folder.path())) == "a b c m");
  CHECK(frt::io::parse_json(read_file(folder / "model.safetensors.index.json"),
                            "i")["metadata"]["total_size"] == 6);
}

TEST_CASE("several files without an index are read together") {
  const ScratchFolder folder;
  make(folder / "layers-0.safetensors", {"a"});
  make(folder / "outside.safetensors", {"b"});
  make(folder / "mtp.safetensors", {"m"});
  CHECK(names_of(Checkpoint::open(folder.path())) == "a b m");
}

TEST_CASE("a shard that is missing or lacks its tensor is named") {
  const ScratchFolder folder;
  make(folder / "one.safetensors", {"a"});
  const auto index = [&](const std::string& text) {
    write_file(folder / "model.safetensors.index.json", text);
    return Checkpoint::open(folder.path());
  };
  CHECK_FAILS(index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"), "NOT_FOUND",
              "two.safetensors", "model.safetensors.index.json names it");
  CHECK_FAILS(index(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})"), "FORMAT",
              "index.json", "tensor 'b' is in one.safetensors", "in no file");
  make(folder / "two.safetensors", {"b"});
  CHECK_FAILS(index(R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors"}})"), "FORMAT",
              "tensor 'a' is in two.safetensors, but it is in", "one.safetensors");
  CHECK_FAILS(index("{"), "FORMAT", "index.json:1:");
  CHECK_FAILS(index("[]"), "FORMAT", "no object 'weight_map'");
  CHECK_FAILS(index(R"({"weight_map":[]})"), "FORMAT", "no object 'weight_map'");
  CHECK_FAILS(index(R"({"weight_map":{}})"), "FORMAT", "empty");
  CHECK_FAILS(index(R"({"weight_map":{"a":1}})"), "FORMAT", "tensor 'a' is no string");
  CHECK_FAILS(index(R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})"), "FORMAT",
              "'a' stands twice");
  for (const char* outside : {"../one.safetensors", "/etc/passwd", "..", "", "x/one.safetensors"}) {
    CHECK_FAILS(index(std::string(R"({"weight_map":{"a":")") + outside + "\"}}"), "FORMAT",
                "no name of a file in the same folder");
  }
}

TEST_CASE("a tensor in two files is an error that names both") {
  const ScratchFolder folder;
  make(folder / "one.safetensors", {"a", "b"});
  make(folder / "two.safetensors", {"b"});
  CHECK_FAILS(Checkpoint::open(folder.path()), "FORMAT", "tensor 'b' stands in two files",
              "one.safetensors", "two.safetensors");
}

TEST_CASE("a folder without weights and a path that does not exist are not found") {
  const ScratchFolder folder;
  CHECK_FAILS(Checkpoint::open(folder.path()), "NOT_FOUND", "has no model.safetensors");
  CHECK_FAILS(Checkpoint::open(folder / "nowhere"), "NOT_FOUND", "nowhere", "no such checkpoint");
  write_file(folder / "model.safetensors", "junk");
  CHECK_FAILS(Checkpoint::open(folder.path()), "FORMAT", "model.safetensors", "4 bytes");
}

TEST_CASE("a missing tensor comes with the closest name, a wrong shape with both shapes") {
  const ScratchFolder folder;
  make(folder / "model.safetensors", {"model.layers.0.mlp.up_proj.weight", "lm_head.weight"});
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  CHECK_FAILS(checkpoint.get("model.layers.0.mlp.up_proj.weigth"), "NOT_FOUND",
              "has no tensor 'model.layers.0.mlp.up_proj.weigth'",
              "closest name is 'model.layers.0.mlp.up_proj.weight'");
  const std::string far = error_of([&] { checkpoint.get("vision"); });
  CHECK(contains(far, "has no tensor 'vision'"));
  CHECK_FALSE(contains(far, "closest"));
  CHECK(checkpoint.find("vision") == nullptr);
  CHECK(checkpoint.contains("lm_head.weight"));
  CHECK_NOTHROW(checkpoint.require("lm_head.weight", {2}));
  CHECK_FAILS(checkpoint.require("lm_head.weight", {2, 1}), "MISMATCH", "model.safetensors",
              "tensor 'lm_head.weight' has shape [2], expected [2, 1]");
  CHECK_FAILS(checkpoint.require("lm_head.weight", {3}), "MISMATCH", "expected [3]");
}

TEST_CASE("views outlive the checkpoint object they came from as long as a copy is kept") {
  const ScratchFolder folder;
  make(folder / "model.safetensors", {"abc"});
  Checkpoint copy = [&] { return Checkpoint(Checkpoint::open(folder.path())); }();
  std::filesystem::remove(folder / "model.safetensors");
  CHECK(text_of(copy.get("abc")) == "aa");
}

TEST_CASE("digests name each file") {
  const ScratchFolder folder;
  make(folder / "two.safetensors", {"b"});
  make(folder / "one.safetensors", {"a"});
  const auto digests = Checkpoint::open(folder.path()).digests(2);
  REQUIRE(digests.size() == 2);
  CHECK(digests[0].first == "one.safetensors");
  CHECK(digests[0].second == sha256_file(folder / "one.safetensors"));
  CHECK(digests[1].first == "two.safetensors");
  CHECK(digests[1].second == sha256_file(folder / "two.safetensors"));
}

TEST_CASE("tensors are read whole and in parts, from the right file, and never beyond their end") {
  const ScratchFolder folder;
  make(folder / "model-1.safetensors", {"a", "b"});
  make(folder / "model-2.safetensors", {"c"});
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  for (const char* name : {"a", "b", "c"}) {
    const TensorView& tensor = checkpoint.get(name);
    CHECK(text_of(tensor) == std::string(2, name[0]));
    std::byte target[3]{};
    tensor.read(1, std::span(target).first(1));
    CHECK(std::to_integer<char>(target[0]) == name[0]);
    CHECK(std::to_integer<char>(target[1]) == 0);
    tensor.read(2, {});
    CHECK_FAILS(tensor.read(0, target), "OUT_OF_RANGE", "outside tensor", name);
    CHECK_FAILS(tensor.read(2, std::span(target).first(1)), "OUT_OF_RANGE", "outside tensor");
    CHECK_FAILS(tensor.read(~std::uint64_t{0}, std::span(target).first(1)), "OUT_OF_RANGE", "read");
  }
}
