// SPDX-License-Identifier: Apache-2.0
// What the writer writes, the reader reads; what it must not write, it refuses.
#include <frt/models/safetensors.hpp>
#include <frt/models/safetensors_writer.hpp>

#include <cstring>
#include <string>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

std::span<const std::byte> as_data(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const TensorView& tensor) {
  const std::vector<std::byte> data = tensor.read();
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

}  // namespace

TEST_CASE("tensors written in pieces and in any order are read back") {
  const ScratchFolder folder;
  const auto path = folder / "w.safetensors";
  SafetensorsWriter writer(path);
  writer.set_metadata("format", "pt");
  writer.set_metadata("note", "\"quotes\" and \n lines");
  CHECK(writer.declare("bytes", FRT_DTYPE_U8, {3}) == 3);
  CHECK(writer.declare("empty", FRT_DTYPE_F32, {0, 7}) == 0);
  CHECK(writer.declare("na\"me\u00e9", FRT_DTYPE_BF16, {2, 2}) == 8);
  CHECK(writer.declare("scalar", FRT_DTYPE_F64, {}) == 8);
  writer.write("scalar", as_data("12345678"));
  writer.write("na\"me\u00e9", as_data("abc"));
  writer.write("bytes", as_data("xyz"));
  writer.write("na\"me\u00e9", as_data("defgh"));
  CHECK_FALSE(std::filesystem::exists(path));
  const std::uint64_t size = writer.finish();
  CHECK(size == std::filesystem::file_size(path));
  CHECK_FALSE(std::filesystem::exists(folder / "w.safetensors.partial"));

  const Checkpoint file = Checkpoint::open(path);
  CHECK(file.tensors().size() == 4);
  CHECK(text_of(file.require("na\"me\u00e9", {2, 2})) == "abcdefgh");
  CHECK(text_of(file.require("bytes", {3})) == "xyz");
  CHECK(text_of(file.require("scalar", {})) == "12345678");
  CHECK(text_of(file.require("empty", {0, 7})).empty());
  CHECK(file.get("scalar").dtype == FRT_DTYPE_F64);
  REQUIRE(file.files()[0]->metadata().size() == 2);
  CHECK(file.files()[0]->metadata()[1].second == "\"quotes\" and \n lines");
}

TEST_CASE("every tensor lies aligned for its dtype, whatever the order of declaration") {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "w.safetensors");
  writer.declare("a", FRT_DTYPE_U8, {5});
  writer.declare("b", FRT_DTYPE_F64, {1});
  writer.declare("c", FRT_DTYPE_BF16, {3});
  writer.declare("d", FRT_DTYPE_F32, {1});
  for (const auto& [name, bytes] : {std::pair{"a", 5}, {"b", 8}, {"c", 6}, {"d", 4}}) {
    writer.write(name, as_data(std::string(static_cast<std::size_t>(bytes), 'x')));
  }
  writer.finish();
  const std::string file = read_file(folder / "w.safetensors");
  CHECK(static_cast<unsigned char>(file[0]) % 8 == 0);  // the header's length
  const auto opened = SafetensorsFile::open(folder / "w.safetensors");
  for (const TensorView& tensor : opened->tensors()) {
    CHECK(tensor.offset % (frt::dtype_bits(tensor.dtype) / 8) == 0);
  }
}

TEST_CASE("a file without tensors is a file") {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "w.safetensors");
  writer.finish();
  CHECK(Checkpoint::open(folder / "w.safetensors").tensors().empty());
}

TEST_CASE("an unfinished writer leaves nothing and does not touch the old file") {
  const ScratchFolder folder;
  write_file(folder / "w.safetensors", "old");
  {
    SafetensorsWriter writer(folder / "w.safetensors");
    writer.declare("a", FRT_DTYPE_U8, {2});
    writer.write("a", as_data("x"));
    CHECK(std::filesystem::exists(folder / "w.safetensors.partial"));
    CHECK_FAILS(writer.finish(), "INVALID_ARGUMENT", "tensor 'a' has 2 bytes", "only 1");
  }
  CHECK(read_file(folder / "w.safetensors") == "old");
  CHECK_FALSE(std::filesystem::exists(folder / "w.safetensors.partial"));
}

TEST_CASE("misuse of the writer is refused by name") {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "w.safetensors");
  writer.declare("a", FRT_DTYPE_U8, {2});
  CHECK_FAILS(writer.declare("a", FRT_DTYPE_U8, {2}), "EXISTS", "'a' is declared twice");
  CHECK_FAILS(writer.declare("", FRT_DTYPE_U8, {2}), "INVALID_ARGUMENT", "no name");
  CHECK_FAILS(writer.declare("__metadata__", FRT_DTYPE_U8, {2}), "INVALID_ARGUMENT", "no name");
  CHECK_FAILS(writer.declare("f4", FRT_DTYPE_F4_E2M1, {2}), "INVALID_ARGUMENT", "'f4'", "f4_e2m1");
  CHECK_FAILS(writer.declare("big", FRT_DTYPE_F32, {std::uint64_t{1} << 62, 4}), "INVALID_ARGUMENT",
              "'big'", "overflows");
  writer.set_metadata("k", "v");
  CHECK_FAILS(writer.set_metadata("k", "w"), "EXISTS", "'k' is set twice");
  CHECK_FAILS(writer.write("b", as_data("x")), "INVALID_ARGUMENT", "'b' is not declared");
  CHECK_FAILS(writer.write("a", as_data("xyz")), "OUT_OF_RANGE", "'a' has 2 bytes", "3 are");
  writer.write("a", as_data("x"));
  CHECK_FAILS(writer.declare("c", FRT_DTYPE_U8, {1}), "INVALID_ARGUMENT", "after the first data");
  CHECK_FAILS(writer.set_metadata("l", "w"), "INVALID_ARGUMENT", "after the first data");
  CHECK_FAILS(writer.write("a", as_data("xy")), "OUT_OF_RANGE", "3 are");
  writer.write("a", as_data("y"));
  writer.finish();
  CHECK_FAILS(writer.write("a", as_data("")), "INVALID_ARGUMENT", "after finish");
  CHECK_FAILS(writer.finish(), "INVALID_ARGUMENT", "finished already");
}

TEST_CASE("a folder that does not exist is an error with the path") {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "none/w.safetensors");
  CHECK_FAILS(writer.finish(), "NOT_FOUND", "none/w.safetensors.partial");
  CHECK_FAILS(write_safetensors_index(folder / "none/i.json", {{"a", "f"}}, 1), "NOT_FOUND",
              "none/i.json");
}
