// SPDX-License-Identifier: Apache-2.0
// Checkpoints with one defect each. Every one gives one message that says what and where; none
// crashes.
#include <unistd.h>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <frt/models/json.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "model_rig.hpp"

namespace fs = std::filesystem;
using frt::Error;
using frt::models::Json;
using frt::test::kFixtures;
using frt::test::ModelRig;

namespace {

const fs::path kShapes = kFixtures / "qwen36_lengths";

// A copy of a fixture that a test may break.
class Copy {
 public:
  explicit Copy(const fs::path& fixture)
      : folder(fs::temp_directory_path() / ("frt-qwen36-" + std::to_string(::getpid()))) {
    fs::remove_all(folder);
    fs::copy(fixture, folder);
  }
  ~Copy() { fs::remove_all(folder); }

  std::string read(const std::string& file) const {
    std::ifstream in(folder / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& file, const std::string& bytes) const {
    std::ofstream(folder / file, std::ios::binary | std::ios::trunc) << bytes;
  }
  // Changes the header and the data of model.safetensors.
  void edit(const std::function<void(Json& header, std::string& data)>& change) const {
    const std::string bytes = read("model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    Json header = Json::parse(bytes.substr(8, length));
    std::string data = bytes.substr(8 + length);
    change(header, data);
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    length = text.size();
    write("model.safetensors",
          std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
  }
  void edit_config(const std::function<void(Json&)>& change) const {
    Json json = Json::parse(read("config.json"));
    change(json);
    write("config.json", json.dump());
  }

  fs::path folder;
};

// What loading says; the empty text if it succeeds.
std::string error_of(const fs::path& folder, const std::string& options = "") {
  try {
    const ModelRig rig(folder.string(), "max_context = 64\nslots = 1\n" + options);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

void check_says(const std::string& error, std::initializer_list<const char*> parts) {
  CAPTURE(error);
  CHECK(!error.empty());
  for (const char* part : parts) CHECK(error.find(part) != std::string::npos);
}

const char* const kNorm = "model.language_model.layers.0.input_layernorm.weight";

}  // namespace

TEST_CASE("a checkpoint folder that is not there, or without its files, is named") {
  check_says(error_of("/no/such/folder"), {"/no/such/folder", "no such folder"});
  Copy copy(kShapes / "ratio_1");
  fs::remove(copy.folder / "model.safetensors");
  check_says(error_of(copy.folder), {copy.folder.c_str()});
  fs::remove(copy.folder / "config.json");
  check_says(error_of(copy.folder), {"config.json"});
}

TEST_CASE("a broken config.json is reported with its position or key") {
  const Copy copy(kShapes / "ratio_1");
  copy.write("config.json", "{\"hidden_size\": }");
  check_says(error_of(copy.folder), {"config.json"});
  copy.write("config.json", "{\"hidden_size\": 12}");
  check_says(error_of(copy.folder), {"config.json", "vocab_size"});
}

TEST_CASE("a truncated weight file and a lying header are refused") {
  const Copy copy(kShapes / "ratio_1");
  const std::string whole = copy.read("model.safetensors");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{5}, std::size_t{100}, whole.size() - 1}) {
    copy.write("model.safetensors", whole.substr(0, size));
    check_says(error_of(copy.folder), {"model.safetensors"});
  }
  std::string lying = whole;
  lying[6] = '\x7f';
  copy.write("model.safetensors", lying);
  check_says(error_of(copy.folder), {"model.safetensors"});
}

TEST_CASE("a missing tensor, a wrong shape and an unknown type name tensor and file") {
  const Copy copy(kShapes / "ratio_1");
  SUBCASE("missing") {
    copy.edit([](Json& header, std::string&) {
      Json entry = header[kNorm];
      header.erase(kNorm);
      header["something.else"] = entry;
    });
    check_says(error_of(copy.folder), {kNorm});
  }
  SUBCASE("shape of a vector") {
    copy.edit([](Json& header, std::string&) { header[kNorm]["shape"] = Json::array({4, 8}); });
    check_says(error_of(copy.folder), {kNorm, "model.safetensors", "[32]", "[4, 8]"});
  }
  SUBCASE("shape of a matrix") {
    copy.edit_config([](Json& json) { json["text_config"]["intermediate_size"] = 128; });
    check_says(error_of(copy.folder), {"gate_proj", "model.safetensors", "128", "64"});
  }
  SUBCASE("type") {
    copy.edit([](Json& header, std::string&) { header[kNorm]["dtype"] = "F6_E3M2"; });
    check_says(error_of(copy.folder), {kNorm, "F6_E3M2"});
  }
  SUBCASE("no trunk at all") {
    copy.edit([](Json& header, std::string&) {
      Json renamed = Json::object();
      for (const auto& [name, entry] : header.items()) {
        renamed[name == "__metadata__" ? name : "x." + name] = entry;
      }
      header = renamed;
    });
    check_says(error_of(copy.folder), {"embed_tokens.weight"});
  }
}

TEST_CASE("values that are not finite in small tensors are refused") {
  const Copy copy(kShapes / "ratio_1");
  copy.edit([](Json& header, std::string& data) {
    const auto at = header[kNorm]["data_offsets"][0].get<std::size_t>();
    data[at] = '\x80';  // 0x7f80: infinity in bf16
    data[at + 1] = '\x7f';
  });
  check_says(error_of(copy.folder), {kNorm, "model.safetensors"});
}

TEST_CASE("scales that are NaN or zero are refused, naming the tensor") {
  const auto with_scale = [](const char* ending, float value) {
    const Copy copy(kShapes / "moe_nvfp4");
    std::string name;
    copy.edit([&](Json& header, std::string& data) {
      for (const auto& [tensor, entry] : header.items()) {
        if (!tensor.ends_with(ending)) continue;
        name = tensor;
        std::memcpy(data.data() + entry["data_offsets"][0].get<std::size_t>(), &value, 4);
        break;
      }
    });
    REQUIRE(!name.empty());
    const std::string base = name.substr(0, name.rfind('.'));
    check_says(error_of(copy.folder), {base.c_str(), "model.safetensors"});
  };
  with_scale("down_proj.weight_scale_2", std::nanf(""));
  with_scale("down_proj.weight_scale_2", 0.0f);
  with_scale("in_proj_qkv.weight_scale", std::nanf(""));
  with_scale("in_proj_qkv.weight_scale", 0.0f);
}

TEST_CASE("experts of one layer in different formats are refused") {
  const Copy copy(kShapes / "moe_fp8");
  copy.edit([](Json& header, std::string& data) {
    const std::string base = "model.language_model.layers.0.mlp.experts.1.up_proj.weight";
    REQUIRE(header.contains(base + "_scale_inv"));
    header.erase(base + "_scale_inv");
    header[base]["dtype"] = "BF16";
    std::string packed;
    for (auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const auto first = entry["data_offsets"][0].get<std::size_t>();
      const auto last = entry["data_offsets"][1].get<std::size_t>();
      const std::size_t bytes = name == base ? 2 * (last - first) : last - first;
      entry["data_offsets"] = Json::array({packed.size(), packed.size() + bytes});
      packed += data.substr(first, last - first);
      packed.resize(entry["data_offsets"][1].get<std::size_t>());
    }
    data = packed;
  });
  check_says(error_of(copy.folder), {"experts.1.up_proj", "format differs from that of expert 0"});
}

TEST_CASE("an unusable tokenizer.json is refused, and a missing one is not needed") {
  const Copy copy(kShapes / "ratio_1");
  CHECK(error_of(copy.folder).empty());
  copy.write("tokenizer.json", "{\"model\": [");
  check_says(error_of(copy.folder), {"tokenizer.json"});
  copy.write("tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {}}})");
  check_says(error_of(copy.folder), {"tokenizer.json"});
}

TEST_CASE("an index that names a missing shard is refused") {
  const Copy copy(kShapes / "ratio_1");
  copy.write("model.safetensors.index.json",
             R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})");
  check_says(error_of(copy.folder), {"model-00001-of-00002.safetensors"});
}

TEST_CASE("speculation that was asked for needs a draft head") {
  Copy copy(kShapes / "ratio_3_flat");
  CHECK(error_of(copy.folder, "speculation = \"on\"").empty());
  fs::remove(copy.folder / "mtp.safetensors");
  CHECK(error_of(copy.folder).empty());
  check_says(error_of(copy.folder, "speculation = \"on\""), {"draft head", "mtp"});
}
