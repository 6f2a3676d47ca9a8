// SPDX-License-Identifier: Apache-2.0
// Formats are recognised from the tensors alone; values are those of a numpy reader; quantising the
// BF16 fixture gives the quantised fixtures byte for byte.
#include <frt/models/linear_weight.hpp>
#include <frt/models/safetensors_writer.hpp>
#include <frt/models/sha256.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "test_support.hpp"

using namespace frt::models;
using namespace frt::models::test;

namespace {

Checkpoint fixture(std::string_view name) {
  return Checkpoint::open(kFixtures / "qwen36" / name);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string bytes_of(const TensorView& tensor) {
  const std::vector<std::byte> data = tensor.read();
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

struct Part {
  const char* name;
  frt_dtype dtype;
  std::vector<std::uint64_t> shape;
  std::string data;
};

std::string floats(std::initializer_list<float> values) {
  return bytes_of(std::vector<float>(values));
}

// A checkpoint with the given tensors; data is repeated to the needed size.
Checkpoint checkpoint_of(const ScratchFolder& folder, const std::vector<Part>& parts) {
  SafetensorsWriter writer(folder / "model.safetensors");
  for (const Part& part : parts) writer.declare(part.name, part.dtype, part.shape);
  for (const Part& part : parts) {
    std::uint64_t bytes = frt::dtype_bits(part.dtype) / 8;
    for (const std::uint64_t extent : part.shape) bytes *= extent;
    std::string data;
    while (data.size() < bytes) data += part.data;
    writer.write(part.name, std::as_bytes(std::span(data.data(), bytes)));
  }
  writer.finish();
  return Checkpoint::open(folder.path());
}

const std::string kOnes = "\x38";  // 1.0 in E4M3

}  // namespace

TEST_CASE("dequantised fixtures equal the numpy reader bit for bit") {
  const ScratchFolder folder;
  const Json expected = frt::io::read_json_file(kFixtures / "models_common/dequantised.json");
  std::map<std::string, int> formats;
  for (const auto& one : expected.items()) {
    const std::string& name = one.key();
    const Checkpoint checkpoint = fixture(name);
    for (const auto& linear : one.value().items()) {
      const std::string& base = linear.key();
      const auto& golden = linear.value();
      const auto rows = golden["rows"].get<std::uint64_t>();
      const auto columns = golden["columns"].get<std::uint64_t>();
      const LinearWeight weight = find_linear(checkpoint, base, rows, columns);
      std::vector<float> values(rows * columns);
      dequantise(weight, values);
      write_file(folder / "values", bytes_of(values));
      INFO(name, " ", base);
      CHECK(sha256_file(folder / "values") == golden["sha256"].get<std::string>());
      ++formats[name + " " + std::string(weight_format_name(weight.format))];
    }
  }
  CHECK(formats["dense_fp8_block fp8-block"] == 32);
  CHECK(formats["dense_nvfp4_ct nvfp4"] == 19);
  CHECK(formats["dense_nvfp4_modelopt nvfp4"] == 13);
  CHECK(formats["dense_nvfp4_modelopt fp8-tensor"] == 13);
  CHECK(formats["dense_nvfp4_modelopt plain"] > 0);
}

TEST_CASE("quantising the BF16 fixture gives the quantised fixtures byte for byte") {
  const Checkpoint dense = fixture("dense");
  int compared = 0;
  for (const char* name : {"dense_fp8_block", "dense_nvfp4_ct", "dense_nvfp4_modelopt"}) {
    const Checkpoint packed = fixture(name);
    for (const TensorView& tensor : dense.tensors()) {
      if (!tensor.name.ends_with(".weight") || tensor.shape.size() != 2) continue;
      const std::string base(tensor.name.substr(0, tensor.name.size() - 7));
      const std::uint64_t rows = tensor.shape[0], columns = tensor.shape[1];
      if (!packed.contains(base + ".weight") && !packed.contains(base + ".weight_packed")) continue;
      const LinearWeight stored = find_linear(packed, base, rows, columns);
      if (stored.format == WeightFormat::kPlain) continue;
      const std::vector<float> values = to_f32(tensor);
      INFO(name, " ", base);
      ++compared;
      if (stored.format != WeightFormat::kNvfp4) {
        const Fp8Weight made =
            quantise_fp8(values, rows, columns, stored.block, stored.scales.dtype);
        CHECK(bytes_of(made.codes) == bytes_of(stored.weight));
        CHECK(made.scales == to_f32(stored.scales));
        continue;
      }
      float amax = 0;
      for (const float value : values) amax = std::max(amax, std::abs(value));
      const bool pair = base.ends_with("gate_proj") || base.ends_with("up_proj");
      if (pair && stored.naming == Nvfp4Naming::kModelOpt) {  // these share a global scale
        const std::string stem = base.substr(0, base.rfind('.') + 1);
        for (const char* half : {"gate_proj.weight", "up_proj.weight"}) {
          for (const float value : to_f32(dense.get(stem + half))) {
            amax = std::max(amax, std::abs(value));
          }
        }
      }
      const Nvfp4Weight made = quantise_nvfp4(values, rows, columns, stored.naming, amax);
      CHECK(bytes_of(made.packed) == bytes_of(stored.weight));
      CHECK(bytes_of(made.scales) == bytes_of(stored.scales));
      CHECK(made.global_scale == stored.global_scale);
    }
  }
  CHECK(compared == 32 + 19 + 26);
}

TEST_CASE("per-channel and per-tensor scales are told apart by their shape") {
  const ScratchFolder folder;
  const Checkpoint checkpoint =
      checkpoint_of(folder, {{"c.weight", FRT_DTYPE_F8_E4M3, {2, 3}, kOnes},
                             {"c.weight_scale", FRT_DTYPE_F32, {2, 1}, floats({2, 3})},
                             {"t.weight", FRT_DTYPE_F8_E4M3, {2, 3}, kOnes},
                             {"t.weight_scale", FRT_DTYPE_F32, {}, floats({5})},
                             {"u.weight", FRT_DTYPE_F8_E4M3, {2, 3}, kOnes},
                             {"u.weight_scale", FRT_DTYPE_BF16, {1}, std::string("\x40\x40", 2)}});
  std::vector<float> out(6);
  const LinearWeight channel = find_linear(checkpoint, "c", 2, 3);
  CHECK(channel.format == WeightFormat::kFp8Channel);
  CHECK(channel.block.rows == 1);
  CHECK(channel.block.columns == 3);
  dequantise(channel, out);
  CHECK(out == std::vector<float>{2, 2, 2, 3, 3, 3});
  const LinearWeight tensor = find_linear(checkpoint, "t", 2, 3);
  CHECK(tensor.format == WeightFormat::kFp8Tensor);
  dequantise(tensor, out);
  CHECK(out == std::vector<float>(6, 5));
  CHECK(find_linear(checkpoint, "u", 2, 3).format == WeightFormat::kFp8Tensor);
  dequantise(find_linear(checkpoint, "u", 2, 3), out);
  CHECK(out == std::vector<float>(6, bf16_to_f32(0x4040)));
  std::vector<float> small(5);
  CHECK_FAILS(dequantise(tensor, small), "INVALID_ARGUMENT", "5 elements", "'t.weight'", "6");
}

TEST_CASE("a scale that is NaN or infinite is an error with tensor and element") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const ScratchFolder folder;
  const Checkpoint checkpoint = checkpoint_of(
      folder, {{"a.weight", FRT_DTYPE_F8_E4M3, {2, 2}, kOnes},
               {"a.weight_scale_inv", FRT_DTYPE_F32, {2, 1}, floats({1, nan})},
               {"b.weight", FRT_DTYPE_F8_E4M3, {2, 2}, kOnes},
               {"b.weight_scale", FRT_DTYPE_F32, {}, floats({infinity})},
               {"c.weight", FRT_DTYPE_U8, {1, 16}, "\1"},
               {"c.weight_scale", FRT_DTYPE_F8_E4M3, {1, 2}, std::string("\x38\x7f", 2)},
               {"c.weight_scale_2", FRT_DTYPE_F32, {}, floats({1})},
               {"d.weight_packed", FRT_DTYPE_U8, {1, 8}, "\1"},
               {"d.weight_scale", FRT_DTYPE_F8_E4M3, {1, 1}, kOnes},
               {"d.weight_global_scale", FRT_DTYPE_F32, {1}, floats({nan})},
               {"e.weight_packed", FRT_DTYPE_U8, {1, 8}, "\1"},
               {"e.weight_scale", FRT_DTYPE_F8_E4M3, {1, 1}, kOnes},
               {"e.weight_global_scale", FRT_DTYPE_F32, {1}, floats({0})}});
  CHECK_FAILS(find_linear(checkpoint, "a", 2, 2, {1, 2}), "FORMAT", "model.safetensors",
              "'a.weight_scale_inv': element 1 is NaN");
  CHECK_FAILS(find_linear(checkpoint, "b", 2, 2), "FORMAT",
              "'b.weight_scale': element 0 is infinite");
  CHECK_FAILS(find_linear(checkpoint, "c", 1, 32), "FORMAT", "'c.weight_scale': element 1 is NaN");
  CHECK_FAILS(find_linear(checkpoint, "d", 1, 16), "FORMAT", "'d.weight_global_scale'", "NaN");
  CHECK_FAILS(find_linear(checkpoint, "e", 1, 16), "FORMAT", "'e.weight_global_scale'", "positive");
}

TEST_CASE("a negative scale of NVFP4 is an error, as products of FP4 by FP4 read no sign") {
  const ScratchFolder folder;
  const Checkpoint checkpoint = checkpoint_of(
      folder, {{"a.weight", FRT_DTYPE_U8, {1, 16}, "\1"},
               {"a.weight_scale", FRT_DTYPE_F8_E4M3, {1, 2}, std::string("\x38\xb8", 2)},
               {"a.weight_scale_2", FRT_DTYPE_F32, {}, floats({1})},
               {"b.weight_packed", FRT_DTYPE_U8, {1, 16}, "\1"},
               {"b.weight_scale", FRT_DTYPE_F8_E4M3, {1, 2}, std::string("\x38\x80", 2)},
               {"b.weight_global_scale", FRT_DTYPE_F32, {1}, floats({1})}});
  CHECK_FAILS(find_linear(checkpoint, "a", 1, 32), "FORMAT", "model.safetensors",
              "'a.weight_scale': element 1 is -1.0", "not negative");
  CHECK(find_linear(checkpoint, "b", 1, 32).format == WeightFormat::kNvfp4);  // -0 is 0
}

TEST_CASE("companions that are missing or wrong are named with what was expected") {
  const ScratchFolder folder;
  const Checkpoint checkpoint =
      checkpoint_of(folder, {{"a.weight", FRT_DTYPE_F8_E4M3, {2, 2}, kOnes},
                             {"b.weight", FRT_DTYPE_F8_E4M3, {300, 2}, kOnes},
                             {"b.weight_scale_inv", FRT_DTYPE_F32, {2, 1}, floats({1})},
                             {"c.weight", FRT_DTYPE_F8_E4M3, {4, 2}, kOnes},
                             {"c.weight_scale", FRT_DTYPE_F32, {2, 1}, floats({1})},
                             {"d.weight_packed", FRT_DTYPE_U8, {1, 8}, "\1"},
                             {"e.weight", FRT_DTYPE_I32, {2, 2}, "\1"},
                             {"f.weight", FRT_DTYPE_F8_E4M3, {2, 2}, kOnes},
                             {"f.weight_scale", FRT_DTYPE_F16, {}, "\1"},
                             {"g.weight", FRT_DTYPE_U8, {1, 8}, "\1"},
                             {"g.weight_scale", FRT_DTYPE_F32, {1, 1}, floats({1})},
                             {"g.weight_scale_2", FRT_DTYPE_F32, {}, floats({1})},
                             {"h.weight", FRT_DTYPE_U8, {1, 4}, "\1"},
                             {"h.weight_scale_2", FRT_DTYPE_F32, {}, floats({1})},
                             {"i.weight_packed", FRT_DTYPE_U8, {1, 8}, "\1"},
                             {"i.weight_scale", FRT_DTYPE_F8_E4M3, {1, 1}, kOnes},
                             {"i.weight_global_scale", FRT_DTYPE_F32, {2}, floats({1})}});
  CHECK_FAILS(find_linear(checkpoint, "a", 2, 2), "NOT_FOUND", "no tensor 'a.weight_scale'");
  CHECK_FAILS(find_linear(checkpoint, "a", 2, 3), "MISMATCH", "'a.weight'", "[2, 2]", "[2, 3]");
  CHECK_FAILS(find_linear(checkpoint, "b", 300, 2), "MISMATCH", "'b.weight_scale_inv'",
              "[2, 1], expected [3, 1]");
  CHECK_FAILS(find_linear(checkpoint, "c", 4, 2), "MISMATCH", "'c.weight_scale'",
              "[2, 1], expected [4, 1]");
  CHECK_FAILS(find_linear(checkpoint, "d", 1, 16), "NOT_FOUND", "'d.weight_scale'");
  CHECK_FAILS(find_linear(checkpoint, "e", 2, 2), "UNSUPPORTED", "'e.weight' has dtype I32",
              "BF16 or F16 or F32 or F8_E4M3");
  CHECK_FAILS(find_linear(checkpoint, "f", 2, 2), "UNSUPPORTED", "'f.weight_scale' has dtype F16");
  CHECK_FAILS(find_linear(checkpoint, "g", 1, 16), "UNSUPPORTED", "'g.weight_scale' has dtype F32");
  CHECK_FAILS(find_linear(checkpoint, "h", 1, 8), "UNSUPPORTED", "'h.weight'", "8 columns",
              "multiple of 16");
  CHECK_FAILS(find_linear(checkpoint, "i", 1, 16), "MISMATCH", "'i.weight_global_scale'",
              "one element");
  CHECK_FAILS(find_linear(checkpoint, "z", 1, 16), "NOT_FOUND", "no tensor 'z.weight'");
  CHECK_FAILS(to_f32(checkpoint.get("e.weight")), "UNSUPPORTED", "'e.weight'", "i32");
}

TEST_CASE("plain weights are converted to f32 as they stand") {
  const Checkpoint dense = fixture("dense");
  const TensorView& norm = dense.get("model.language_model.norm.weight");
  const std::vector<float> values = to_f32(norm);
  std::uint16_t first = 0;
  norm.read(0, std::as_writable_bytes(std::span(&first, 1)));
  CHECK(values[0] == bf16_to_f32(first));
  CHECK_NOTHROW(require_finite(norm));
}
