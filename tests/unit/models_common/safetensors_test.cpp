// SPDX-License-Identifier: Apache-2.0
// One file: what a good one shows, and one clear error for every way to break one.
#include <frt/models/formats.hpp>
#include <frt/models/safetensors.hpp>
#include <frt/models/sha256.hpp>

#include <cstring>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

void validate(const std::string& bytes) {
  validate_safetensors(std::as_bytes(std::span(bytes)), "a.safetensors");
}

// A header over 8 bytes of data.
void with_header(const std::string& header) {
  validate(safetensors_bytes(header, "12345678"));
}

constexpr const char* kGood = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

template <class T>
std::vector<T> values(const TensorView& tensor) {
  std::vector<T> out(tensor.bytes / sizeof(T));
  tensor.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

template <class T>
void check_numbers(const SafetensorsFile& file, std::string_view name, frt_dtype dtype) {
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.name != name) continue;
    CHECK(tensor.dtype == dtype);
    CHECK(shape_text(tensor.shape) == "[2, 3]");
    CHECK(tensor.elements() == 6);
    CHECK(values<T>(tensor) == std::vector<T>{T(1), T(2), T(3), T(4), T(5), T(6)});
    return;
  }
  FAIL("no tensor ", std::string(name));
}

}  // namespace

TEST_CASE("a file of the safetensors library shows every dtype, a scalar and an empty tensor") {
  const auto file = SafetensorsFile::open(kFixtures / "models_common/every_dtype.safetensors");
  CHECK(file->tensors().size() == 14);
  check_numbers<std::uint8_t>(*file, "uint8", FRT_DTYPE_U8);
  check_numbers<std::int8_t>(*file, "int8", FRT_DTYPE_I8);
  check_numbers<std::int16_t>(*file, "int16", FRT_DTYPE_I16);
  check_numbers<std::uint16_t>(*file, "uint16", FRT_DTYPE_U16);
  check_numbers<std::int32_t>(*file, "int32", FRT_DTYPE_I32);
  check_numbers<std::uint32_t>(*file, "uint32", FRT_DTYPE_U32);
  check_numbers<std::int64_t>(*file, "int64", FRT_DTYPE_I64);
  check_numbers<std::uint64_t>(*file, "uint64", FRT_DTYPE_U64);
  check_numbers<float>(*file, "float32", FRT_DTYPE_F32);
  check_numbers<double>(*file, "float64", FRT_DTYPE_F64);
  for (const TensorView& tensor : file->tensors()) {
    CHECK(tensor.file == file->path());
    if (tensor.name == "bool") {
      CHECK(tensor.dtype == FRT_DTYPE_BOOL);
      CHECK(values<std::uint8_t>(tensor) == std::vector<std::uint8_t>{0, 1, 0, 1, 0, 1});
    } else if (tensor.name == "float16") {
      CHECK(f16_to_f32(values<std::uint16_t>(tensor)[5]) == 6.0f);
    } else if (tensor.name == "scalar") {
      CHECK(shape_text(tensor.shape) == "[]");
      CHECK(tensor.elements() == 1);
      CHECK(values<float>(tensor) == std::vector<float>{2.5f});
    } else if (tensor.name == "empty") {
      CHECK(shape_text(tensor.shape) == "[0, 4]");
      CHECK(tensor.elements() == 0);
      CHECK(tensor.bytes == 0);
      CHECK(tensor.read().empty());
    }
  }
  REQUIRE(file->metadata().size() == 2);
  CHECK(contains(file->metadata()[0].first + file->metadata()[1].first, "title"));
}

TEST_CASE("every dtype name of the format is known and round-trips") {
  for (const char* name : {"BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64", "F16",
                           "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2"}) {
    const frt_dtype dtype = safetensors_dtype(name);
    CHECK(dtype != FRT_DTYPE_NONE);
    CHECK(safetensors_dtype_name(dtype) == name);
    const std::uint32_t bytes = frt::dtype_bits(dtype) / 8;
    const std::string header = std::string(R"({"x":{"dtype":")") + name +
                               R"(","shape":[3],"data_offsets":[0,)" + std::to_string(3 * bytes) +
                               "]}}";
    CHECK_NOTHROW(validate(safetensors_bytes(header, std::string(3 * bytes, '\0'))));
  }
  CHECK(safetensors_dtype("F4") == FRT_DTYPE_NONE);
  CHECK(safetensors_dtype_name(FRT_DTYPE_F4_E2M1) == "?");
}

TEST_CASE("files at the edge of the rules are accepted") {
  CHECK_NOTHROW(with_header(kGood));
  CHECK_NOTHROW(with_header(std::string(kGood) + "     "));  // padding
  CHECK_NOTHROW(validate(safetensors_bytes("{}", "")));
  CHECK_NOTHROW(validate(safetensors_bytes(R"({"__metadata__":{}})", "")));
  // An empty tensor at any place, out of order in the header.
  CHECK_NOTHROW(with_header(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},)"
                            R"("e":{"dtype":"F32","shape":[5,0],"data_offsets":[4,4]},)"
                            R"("a":{"shape":[4],"data_offsets":[0,4],"dtype":"U8"}})"));
}

TEST_CASE("a length that lies or a file that is too short is an error") {
  CHECK_FAILS(validate(""), "FORMAT", "a.safetensors", "0 bytes", "at least 8");
  CHECK_FAILS(validate("1234567"), "FORMAT", "7 bytes");
  CHECK_FAILS(validate(std::string(8, '\0')), "FORMAT", "does not start with '{'");
  std::string lying = safetensors_bytes(kGood, "12345678");
  lying[0] = static_cast<char>(200);
  CHECK_FAILS(validate(lying), "FORMAT", "a header of 200 bytes", "cut short");
  lying[7] = '\x7f';
  CHECK_FAILS(validate(lying), "FORMAT", "at most 100000000");
  const std::string good = safetensors_bytes(kGood, "12345678");
  CHECK_FAILS(validate(good.substr(0, 20)), "FORMAT", "a header of", "cut short");
  CHECK_FAILS(validate(good.substr(0, good.size() - 1)), "FORMAT", "tensor 'a'", "[0, 8]",
              "7 bytes of data", "cut short");
  CHECK_FAILS(validate(good + "x"), "FORMAT", "cover 8 bytes", "the file has 9");
  CHECK_FAILS(validate("version https://git-lfs.github.com/spec/v1\noid sha256:1\n"), "FORMAT",
              "Git LFS pointer", "git lfs pull");
}

TEST_CASE("every cut of a good file is refused without a crash") {
  const std::string good = read_file(kFixtures / "models_common/every_dtype.safetensors");
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(error_of([&] { validate(good.substr(0, size)); }) != "nothing");
  }
}

TEST_CASE("broken JSON in the header is an error with its place") {
  CHECK_FAILS(with_header("[]"), "FORMAT", "does not start with '{'");
  CHECK_FAILS(with_header(" {}"), "FORMAT", "does not start with '{'");
  CHECK_FAILS(with_header("{"), "FORMAT", "a.safetensors:1:");
  CHECK_FAILS(with_header("{}x"), "FORMAT", "a.safetensors:1:3");
  CHECK_FAILS(with_header("{\"a\xff\":1}"), "FORMAT", "UTF-8");
  CHECK_FAILS(with_header(std::string("{}\0", 3)), "FORMAT", "a.safetensors:1:3");
}

TEST_CASE("a tensor's entry must be what the format says") {
  const auto entry = [](const std::string& body) { with_header("{\"t\":" + body + "}"); };
  CHECK_FAILS(entry("1"), "FORMAT", "a number", "'t'", "expected an object");
  CHECK_FAILS(entry("[]"), "FORMAT", "an array", "'t'");
  CHECK_FAILS(entry("{}"), "FORMAT", "tensor 't' lacks the key 'dtype'");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[8]})"), "FORMAT", "lacks the key 'data_offsets'");
  CHECK_FAILS(entry(R"({"dtype":"U8","data_offsets":[0,8]})"), "FORMAT", "lacks the key 'shape'");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1})"), "FORMAT",
              "tensor 't'", "unknown key 'x'");
  CHECK_FAILS(entry(R"({"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]})"), "FORMAT",
              "tensor 't'", "'dtype' twice");
  CHECK_FAILS(entry(R"({"dtype":"F4","shape":[8],"data_offsets":[0,8]})"), "UNSUPPORTED",
              "tensor 't'", "unknown dtype 'F4'");
  CHECK_FAILS(entry(R"({"dtype":7,"shape":[8],"data_offsets":[0,8]})"), "FORMAT", "a number");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":8,"data_offsets":[0,8]})"), "FORMAT", "a number");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})"), "FORMAT",
              "a negative number");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})"), "FORMAT", "8.0");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,8]})"),
              "FORMAT", "99999999999999999999");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[[8]],"data_offsets":[0,8]})"), "FORMAT", "an array");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":["8"],"data_offsets":[0,8]})"), "FORMAT", "a string");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":{},"data_offsets":[0,8]})"), "FORMAT", "an object");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[8],"data_offsets":[0]})"), "FORMAT",
              "1 data_offsets, expected 2");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8,8]})"), "FORMAT",
              "3 data_offsets, expected 2");
  CHECK_FAILS(entry(R"({"dtype":"U8","shape":[8],"data_offsets":null})"), "FORMAT", "null");
}

TEST_CASE("offsets must fit the shape and cover the data exactly") {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    with_header(R"({"t":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}");
  };
  CHECK_FAILS(one("[3]", "[0,8]"), "FORMAT", "tensor 't'", "F32 [3] needs 12 bytes", "hold 8");
  CHECK_FAILS(one("[1]", "[0,8]"), "FORMAT", "needs 4 bytes", "hold 8");
  CHECK_FAILS(one("[2]", "[8,0]"), "FORMAT", "tensor 't'", "[8, 0]");
  CHECK_FAILS(one("[2]", "[8,16]"), "FORMAT", "[8, 16]", "only 8 bytes of data");
  CHECK_FAILS(one("[2]", "[18446744073709551608,18446744073709551615]"), "FORMAT", "only 8 bytes");
  CHECK_FAILS(one("[4611686018427387904,4]", "[0,8]"), "FORMAT", "overflows");
  CHECK_FAILS(one("[4294967296,4294967296,2]", "[0,8]"), "FORMAT", "overflows");
  CHECK_FAILS(one("[1]", "[4,8]"), "FORMAT", "no tensor covers", "from byte 0 to 4", "'t'");
  const auto two = [](const std::string& a, const std::string& b) {
    with_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}");
  };
  CHECK_FAILS(two("[0,4]", "[3,7]"), "FORMAT", "'b' starts at byte 3", "overlaps tensor 'a'",
              "ends at 4");
  CHECK_FAILS(two("[0,4]", "[0,4]"), "FORMAT", "overlaps");
  CHECK_FAILS(with_header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})"),
              "FORMAT", "no tensor covers", "from byte 2 to 6", "'b'");
  CHECK_FAILS(validate(safetensors_bytes("{}", "x")), "FORMAT", "cover 0 bytes");
}

TEST_CASE("a name that stands twice is an error") {
  CHECK_FAILS(with_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                          R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
              "FORMAT", "tensor 'a' stands twice");
  CHECK_FAILS(validate(safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})", "")), "FORMAT",
              "'__metadata__' stands twice");
  CHECK_FAILS(validate(safetensors_bytes(R"({"__metadata__":{"k":"1","k":"2"}})", "")), "FORMAT",
              "metadata key 'k' stands twice");
}

TEST_CASE("metadata holds strings only") {
  CHECK_FAILS(validate(safetensors_bytes(R"({"__metadata__":{"k":1}})", "")), "FORMAT",
              "'__metadata__'", "'k'", "strings only");
  CHECK_FAILS(validate(safetensors_bytes(R"({"__metadata__":{"k":{}}})", "")), "FORMAT",
              "strings only");
  CHECK_FAILS(validate(safetensors_bytes(R"({"__metadata__":"x"})", "")), "FORMAT", "a string");
}

TEST_CASE("deep nesting in a header is refused, not followed") {
  CHECK_FAILS(with_header("{\"a\":{\"shape\":" + std::string(100000, '[')), "FORMAT", "tensor 'a'");
  std::string objects = "{\"a\":{\"dtype\":";
  for (int i = 0; i < 1000; ++i) objects += "{\"a\":";
  CHECK_FAILS(with_header(objects), "FORMAT", "an object");
}

TEST_CASE("control characters of a name are shown escaped and long names cut") {
  const std::string name = "x\\n\\u0000" + std::string(5000, 'y');
  const std::string message = error_of([&] { with_header("{\"" + name + "\":{}}"); });
  CHECK(contains(message, "'x\\n\\x00yyy"));
  CHECK(contains(message, "yyy...'"));
  CHECK(message.size() < 400);
}

TEST_CASE("files that cannot be opened say so") {
  const ScratchFolder folder;
  CHECK_FAILS(SafetensorsFile::open(folder / "none.safetensors"), "NOT_FOUND", "none.safetensors");
  CHECK_FAILS(SafetensorsFile::open(folder.path()), "IO", "a folder, not a regular file");
  write_file(folder / "empty.safetensors", "");
  CHECK_FAILS(SafetensorsFile::open(folder / "empty.safetensors"), "FORMAT", "empty.safetensors",
              "0 bytes");
}

TEST_CASE("the digest of a file is its SHA-256 and is kept") {
  const ScratchFolder folder;
  write_file(folder / "abc", "abc");
  const char* abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  CHECK(sha256_file(folder / "abc") == abc);
  write_file(folder / "big", std::string(3'000'000, 'a'));
  CHECK(sha256_file(folder / "big") ==
        "2a152c894398719c0570f83fac34ac03a0f6e8e474b995c2403aa5434f7b9dd4");
  CHECK_FAILS(sha256_file(folder / "none"), "NOT_FOUND", "none");
  CHECK_FAILS(sha256_file(folder.path()), "IO");
  const std::string bytes = safetensors_bytes(kGood, "12345678");
  write_file(folder / "a.safetensors", bytes);
  const auto file = SafetensorsFile::open(folder / "a.safetensors");
  const std::string digest = file->sha256();
  CHECK(digest == sha256_file(folder / "a.safetensors"));
  std::filesystem::remove(folder / "a.safetensors");
  CHECK(file->sha256() == digest);
}
