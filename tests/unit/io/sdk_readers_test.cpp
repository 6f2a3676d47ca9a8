// SPDX-License-Identifier: Apache-2.0
// The readers that the SDK gives to plugins: frt/safetensors.hpp and frt/json_reader.hpp.
#include <frt/json_reader.hpp>
#include <frt/safetensors.hpp>

#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "test_support.hpp"

using namespace frt;
using frt::io::test::Folder;
namespace fs = std::filesystem;

namespace {

fs::path write(const Folder& folder, const std::string& header, std::size_t data_bytes,
               uint64_t header_bytes) {
  const fs::path path = folder.path() / "weights.safetensors";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file << header;
  std::vector<float> values(data_bytes / sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5f;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  return path;
}
fs::path write(const Folder& folder, const std::string& header, std::size_t data_bytes) {
  return write(folder, header, data_bytes, header.size());
}

// The status and text that opening gives.
std::pair<frt_status, std::string> refusal(const fs::path& path) {
  try {
    const Safetensors file(path.string());
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {FRT_OK, ""};
}

std::pair<frt_status, std::string> refusal_of(const std::string& text) {
  try {
    JsonReader json("text", text);
    json.skip();
    json.end();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {FRT_OK, ""};
}

}  // namespace

TEST_CASE("tensors and metadata of a safetensors file are what was written") {
  const Folder folder;
  const fs::path path = write(folder,
                              R"({"__metadata__": {"by": "a\u00e9"},
 "b": {"dtype": "F32", "shape": [2, 2], "data_offsets": [4, 20], "more": [{"x": null}]},
 "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})",
                              20);
  const Safetensors file(path.string());
  CHECK(file.tensors().size() == 2);
  CHECK(file.metadata("by") == "a\xC3\xA9");
  CHECK(file.metadata("none", "-") == "-");
  CHECK(file.read_f32("a", {}) == std::vector<float>{0.5f});
  CHECK(file.read_f32("b", {2, 2}) == std::vector<float>{1.5f, 2.5f, 3.5f, 4.5f});
  CHECK_THROWS_WITH_AS(file.read_f32("b", {4}),
                       doctest::Contains("'b' is F32 [2, 2], expected F32 [4]"), Error);
  CHECK_THROWS_WITH_AS(file.tensor("c"), doctest::Contains("has no tensor 'c'"), Error);
}

TEST_CASE("the bytes of a tensor of any type are read as the file has them") {
  const Folder folder;
  const fs::path path =
      write(folder,
            R"({"half": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
 "none": {"dtype": "U8", "shape": [0], "data_offsets": [16, 16]},
 "codes": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}})",
            16);
  const Safetensors file(path.string());
  const float values[] = {0.5f, 1.5f, 2.5f, 3.5f};
  const auto* written = reinterpret_cast<const std::byte*>(values);
  CHECK(file.read("codes", "F8_E4M3", {4}) == std::vector<std::byte>(written, written + 4));
  CHECK(file.read("half", "BF16", {2, 3}) == std::vector<std::byte>(written + 4, written + 16));
  CHECK(file.read("none", "U8", {0}).empty());
  CHECK_THROWS_WITH_AS(file.read("half", "F16", {2, 3}),
                       doctest::Contains("'half' is BF16 [2, 3], expected F16 [2, 3]"), Error);
  CHECK_THROWS_WITH_AS(file.read("half", "BF16", {6}),
                       doctest::Contains("'half' is BF16 [2, 3], expected BF16 [6]"), Error);
  CHECK_THROWS_WITH_AS(file.read("lost", "BF16", {6}), doctest::Contains("has no tensor 'lost'"),
                       Error);
  fs::resize_file(path, fs::file_size(path) - 1);
  CHECK_THROWS_WITH_AS(file.read("half", "BF16", {2, 3}),
                       doctest::Contains("became shorter while it was read"), Error);
}

TEST_CASE("a safetensors file that breaks a rule is refused") {
  const Folder folder;
  const auto tensor = [](const std::string& rest) { return R"({"a": {)" + rest + "}}"; };
  const struct {
    std::string header;
    const char* text;
  } cases[] = {
      {tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 12])"), "does not lie at bytes"},
      {tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])"), "does not lie at bytes"},
      {tensor(R"("dtype": "F32", "shape": [4], "data_offsets": [0, 16])"), "of the 8"},
      {tensor(R"("dtype": "F32", "shape": [4611686018427387904, 8], "data_offsets": [0, 0])"),
       "does not lie at bytes"},
      {tensor(R"("dtype": "F32", "shape": [18446744073709551616], "data_offsets": [0, 0])"),
       "too large"},
      {tensor(R"("dtype": "F32", "shape": [-1], "data_offsets": [0, 0])"), "a whole number"},
      {tensor(R"("dtype": "F32", "shape": [1.5], "data_offsets": [0, 0])"), "a whole number"},
      {tensor(R"("dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4])"),
       "too many dimensions"},
      {tensor(R"("dtype": "F33", "shape": [2], "data_offsets": [0, 8])"), "unknown type 'F33'"},
      {tensor(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8, 9])"), "expected ']'"},
      {R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
           "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
       "two tensors 'a'"},
      {R"({"a": )", "expected '{'"},
      {R"({} {})", "more text"},
      {R"([])", "expected '{'"},
  };
  for (const auto& one : cases) {
    CAPTURE(one.header);
    const auto refused = refusal(write(folder, one.header, 8));
    const std::string& text = refused.second;
    CHECK(refused.first == FRT_ERR_FORMAT);
    CHECK_MESSAGE(text.find(one.text) != std::string::npos, text);
  }
  for (const uint64_t length : {uint64_t{3} << 20, uint64_t{1} << 40, UINT64_MAX}) {
    CHECK(refusal(write(folder, "{}", 8, length)).first == FRT_ERR_FORMAT);
  }
}

TEST_CASE("what is no safetensors file is refused without waiting") {
  const Folder folder;
  CHECK(refusal(folder.path() / "none").first == FRT_ERR_NOT_FOUND);
  CHECK(refusal(folder.path()).first == FRT_ERR_IO);
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
  CHECK(refusal(folder.path() / "pipe").first == FRT_ERR_IO);
  std::ofstream(folder.path() / "short") << "1234567";
  CHECK(refusal(folder.path() / "short").first == FRT_ERR_FORMAT);
}

TEST_CASE("the JSON reader gives what is there and refuses the rest with the byte") {
  JsonReader json("text",
                  R"( {"a": [1, 18446744073709551615], "b": "\ud83d\ude00\n", "c": true} )");
  std::vector<uint64_t> numbers;
  std::string text;
  bool truth = false;
  json.object([&](const std::string& key) {
    if (key == "a") json.array([&] { numbers.push_back(json.unsigned_number()); });
    if (key == "b") text = json.string();
    if (key == "c") truth = json.boolean();
  });
  json.end();
  CHECK(numbers == std::vector<uint64_t>{1, UINT64_MAX});
  CHECK(text == "\xF0\x9F\x98\x80\n");
  CHECK(truth);
  CHECK(json_string("a\"\n\x01") == R"("a\"\u000a\u0001")");

  CHECK(refusal_of(std::string(64, '[') + std::string(64, ']')).first == FRT_OK);
  CHECK(refusal_of(std::string(100000, '[')).second.find("more than 64 levels") !=
        std::string::npos);
  for (const char* right : {"-0", "0.5", "-12e+3", "1E-9", "[true, false, null]"}) {
    CAPTURE(right);
    CHECK(refusal_of(right).first == FRT_OK);
  }
  JsonReader part("text", R"( { "a" : [1, "]"] , "b": 2 } )");
  part.object(
      [&](const std::string& key) { CHECK(part.value() == (key == "a" ? R"([1, "]"])" : "2")); });
  part.end();
  for (const char* wrong :
       {"word",    "truefalse",   "01",        "1.",      "1e",     ".5",
        "+1",      "--1",         "-",         "1e999",   "1x",     "{\"a\": 1, \"a\": 2}",
        "",        "[1",          "[1,]",      "{\"a\"}", "{1: 2}", "\"a",
        "\"\\x\"", "\"\\ud800\"", "\"\\u12\"", "\"\n\"",  "1 2",    "]"}) {
    CAPTURE(wrong);
    const auto [status, message] = refusal_of(wrong);
    CHECK(status == FRT_ERR_INVALID_ARGUMENT);
    CHECK(message.starts_with("text, byte "));
  }
}
