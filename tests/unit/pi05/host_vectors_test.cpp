// SPDX-License-Identifier: Apache-2.0
// The host's part of a policy against numbers of the reference: bins, prompts, normalisation both
// ways, resizing, ALOHA, weights of a continuation, the time embedding.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <frt/models/images.hpp>
#include <frt/models/json.hpp>
#include <frt/models/safetensors.hpp>
#include <numeric>
#include <vector>

#include "interface.hpp"
#include "model.hpp"
#include "prompt.hpp"
#include "time_tables.hpp"

using namespace frt::pi05;
using frt::models::ImageResizer;
using frt::models::Json;
using frt::models::Normaliser;
using frt::models::NormKind;
using frt::models::NormStyle;

namespace {

const std::filesystem::path kHost = std::filesystem::path(FRT_FIXTURES_DIR) / "pi05" / "host";

const Json& host() {
  static const Json json = frt::io::read_json_file(kHost / "host.json");
  return json;
}

std::vector<double> numbers(const Json& json) {
  return json.get<std::vector<double>>();
}

// CRC-32 as zlib has it.
std::uint32_t crc32(const std::vector<std::uint8_t>& bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1u ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

std::vector<std::uint8_t> source_image(std::int64_t i, std::int64_t height, std::int64_t width) {
  std::vector<std::uint8_t> image;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        image.push_back(static_cast<std::uint8_t>(
            (x * (3 + i) + y * (5 + 2 * i) + 31 * c + ((x * y) >> 3) * 7) % 256));
      }
    }
  }
  return image;
}

void check_rows(const Normaliser& normaliser, bool inverse, const Json& input, const Json& golden,
                double relative) {
  REQUIRE(input.size() == golden.size());
  for (std::size_t r = 0; r < input.size(); ++r) {
    std::vector<double> row = numbers(input[r]);
    const std::vector<double> expected = numbers(golden[r]);
    row.resize(std::min(row.size(), expected.size()));
    if (inverse) {
      normaliser.inverse(row);
    } else {
      normaliser.forward(row);
    }
    REQUIRE(row.size() == expected.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      CHECK(std::abs(row[i] - expected[i]) <= relative * std::max(1.0, std::abs(expected[i])));
    }
  }
}

}  // namespace

TEST_CASE("states fall into the bins of the reference, at every edge") {
  const std::vector<double> states = numbers(host()["state_bins"]["state"]);
  const auto bins = host()["state_bins"]["bins"].get<std::vector<std::int32_t>>();
  for (std::size_t i = 0; i < states.size(); ++i) {
    CAPTURE(states[i]);
    CHECK(state_bin(states[i]) == bins[i]);
  }
  CHECK(state_bin(std::nan("")) == 255);
}

TEST_CASE("prompts are those of the reference, with and without state") {
  for (const Json& entry : host()["prompts"]) {
    PromptParts parts;
    const std::string task = entry["task"].get<std::string>();
    const std::vector<double> state =
        entry["state"].is_null() ? std::vector<double>() : numbers(entry["state"]);
    parts.task = task;
    parts.state = state;
    parts.with_state = !entry["state"].is_null();
    const Prompt prompt = build_prompt(parts);
    CHECK(prompt.text == entry["text"].get<std::string>());
    CHECK(prompt.newline != parts.with_state);
  }
}

TEST_CASE("normalisation of both libraries, there and back") {
  const Json& json = host()["normalise"];
  const auto stats = statistics_from(json["stats"]);
  const auto make = [&](NormKind kind, NormStyle style) {
    return Normaliser(kind, style, stats, "state");
  };
  const Normaliser quantile = make(NormKind::kQuantile, NormStyle::kOpenpi);
  check_rows(quantile, false, json["state"], json["openpi_quantile"], 1e-9);
  check_rows(quantile, true, json["actions"], json["openpi_quantile_inverse"], 1e-9);
  const Normaliser zscore = make(NormKind::kMeanStd, NormStyle::kOpenpi);
  check_rows(zscore, false, json["state"], json["openpi_zscore"], 1e-9);
  check_rows(zscore, true, json["actions"], json["openpi_zscore_inverse"], 1e-9);
  const Normaliser quantiles = make(NormKind::kQuantile, NormStyle::kLerobot);
  check_rows(quantiles, false, json["state"], json["lerobot_quantiles"], 1e-6);
  check_rows(quantiles, true, json["actions"], json["lerobot_quantiles_inverse"], 1e-6);
  const Normaliser mean_std = make(NormKind::kMeanStd, NormStyle::kLerobot);
  check_rows(mean_std, false, json["state"], json["lerobot_mean_std"], 1e-6);
  check_rows(mean_std, true, json["actions"], json["lerobot_mean_std_inverse"], 1e-6);
}

TEST_CASE("min-max is the quantile rule with other numbers") {
  frt::models::NormStatistics stats;
  stats.min = {-2, 1};
  stats.max = {2, 1};
  const Normaliser normaliser(NormKind::kMinMax, NormStyle::kLerobot, stats, "state");
  std::vector<double> row = {1, 1};
  normaliser.forward(row);
  CHECK(row[0] == doctest::Approx(0.5));
  CHECK(row[1] == doctest::Approx(-1));
  normaliser.inverse(row);
  CHECK(row[0] == doctest::Approx(1));
  CHECK_THROWS_WITH_AS(Normaliser(NormKind::kQuantile, NormStyle::kOpenpi, stats, "state"),
                       doctest::Contains("q01 and q99"), frt::Error);
}

TEST_CASE("images are resized as Pillow and torch do it") {
  const auto tensors = frt::models::Checkpoint::open(kHost / "resize.safetensors");
  const auto view = [&](const std::string& name) { return tensors.get(name); };
  const frt::models::TensorView row_tensor = view("rows");
  std::vector<std::int32_t> rows(row_tensor.elements());
  row_tensor.read(0, std::as_writable_bytes(std::span(rows)));
  ImageResizer resizer({224, 224});
  for (const Json& entry : host()["resize"]) {
    const auto index = entry["index"].get<std::int64_t>();
    const frt::models::ImageSize size = {entry["height"].get<std::int64_t>(),
                                         entry["width"].get<std::int64_t>()};
    CAPTURE(index);
    const std::vector<std::uint8_t> source = source_image(index, size.height, size.width);
    REQUIRE(crc32(source) == entry["source_crc32"].get<std::uint32_t>());
    std::vector<std::uint8_t> bytes(224 * 224 * 3);
    resizer.pillow(source, size, bytes.data());
    CHECK(crc32(bytes) == entry["openpi_crc32"].get<std::uint32_t>());

    std::vector<float> wide(source.size()), resized(bytes.size());
    std::transform(source.begin(), source.end(), wide.begin(),
                   [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
    resizer.bilinear(wide, size, resized.data());
    const double sum = std::accumulate(resized.begin(), resized.end(), 0.0);
    CHECK(sum / static_cast<double>(resized.size()) ==
          doctest::Approx(entry["lerobot_mean"].get<double>()).epsilon(1e-6));
    const frt::models::TensorView golden = view("lerobot" + std::to_string(index) + ".rows");
    std::vector<float> expected(golden.elements());
    golden.read(0, std::as_writable_bytes(std::span(expected)));
    std::size_t at = 0;
    double worst = 0;
    for (const std::int32_t y : rows) {
      for (std::int64_t x = 0; x < 224; x += 4) {
        for (std::int64_t c = 0; c < 3; ++c) {
          const auto i = static_cast<std::size_t>((y * 224 + x) * 3 + c);
          const auto error = static_cast<double>(std::abs(resized[i] - expected[at++]));
          if (!std::isnan(worst) && !(error <= worst)) worst = error;
        }
      }
    }
    CHECK(worst <= 1e-4);
  }
}

TEST_CASE("images of no size are refused") {
  ImageResizer resizer({8, 8});
  std::vector<std::uint8_t> out(8 * 8 * 3);
  CHECK_THROWS_AS(resizer.pillow({}, {0, 5}, out.data()), frt::Error);
  const std::vector<std::uint8_t> few(10);
  CHECK_THROWS_AS(resizer.pillow(few, {4, 4}, out.data()), frt::Error);
}

TEST_CASE("an image of one pixel, and one that is very wide, still fit") {
  ImageResizer resizer({8, 8});
  std::vector<std::uint8_t> out(8 * 8 * 3);
  const std::vector<std::uint8_t> pixel = {9, 9, 9};
  resizer.pillow(pixel, {1, 1}, out.data());
  CHECK(std::all_of(out.begin(), out.end(), [](std::uint8_t value) { return value == 9; }));
  const std::vector<std::uint8_t> wide(1000 * 3, 200);
  resizer.pillow(wide, {1, 1000}, out.data());
  CHECK(*std::max_element(out.begin(), out.end()) == 200);
}

TEST_CASE("weights of a continuation") {
  const std::map<std::string, std::uint32_t> schedules = {{"linear", FRT_SCHEDULE_LINEAR},
                                                          {"exp", FRT_SCHEDULE_EXPONENTIAL},
                                                          {"ones", FRT_SCHEDULE_ONES},
                                                          {"zeros", FRT_SCHEDULE_ZEROS}};
  for (const Json& entry : host()["rtc_weights"]) {
    const std::vector<float> weights = continuation_weights(
        schedules.at(entry["schedule"].get<std::string>()), entry["delay"].get<std::int64_t>(),
        entry["horizon"].get<std::int64_t>(), entry["total"].get<std::int64_t>());
    const std::vector<double> golden = numbers(entry["weights"]);
    REQUIRE(weights.size() == golden.size());
    for (std::size_t i = 0; i < golden.size(); ++i) {
      CHECK(static_cast<double>(weights[i]) == doctest::Approx(golden[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("masks of differences, ALOHA's joints and grippers") {
  const Json& delta = host()["delta"];
  const std::vector<bool> mask = bool_mask({6, -1, 6, -1});
  const auto golden = delta["mask_6_1_6_1"].get<std::vector<int>>();
  REQUIRE(mask.size() == golden.size());
  for (std::size_t i = 0; i < golden.size(); ++i) CHECK(mask[i] == (golden[i] != 0));

  const Json& aloha = host()["aloha"];
  std::vector<double> state = numbers(aloha["state"]);
  aloha_state(state);
  const std::vector<double> expected = numbers(aloha["state_pi"]);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(state[i] == doctest::Approx(expected[i]).epsilon(1e-12));
  }
  for (std::size_t r = 0; r < aloha["actions_pi"].size(); ++r) {
    std::vector<double> action = numbers(aloha["actions_pi"][r]);
    aloha_actions(action.data());
    const std::vector<double> robot = numbers(aloha["actions"][r]);
    for (std::size_t i = 0; i < robot.size(); ++i) {
      CHECK(action[i] == doctest::Approx(robot[i]).epsilon(1e-12));
    }
  }
}

TEST_CASE("the time embedding of the full width") {
  for (const Json& entry : host()["time_sincos_1024"]) {
    const std::vector<double> e = time_embedding(entry["t"].get<double>(), 1024, 4e-3, 4.0);
    const std::vector<double> first = numbers(entry["first"]), middle = numbers(entry["middle"]);
    for (std::size_t i = 0; i < first.size(); ++i) CHECK(e[i] == doctest::Approx(first[i]));
    for (std::size_t i = 0; i < middle.size(); ++i) {
      CHECK(e[508 + i] == doctest::Approx(middle[i]));
    }
    CHECK(std::accumulate(e.begin(), e.end(), 0.0) == doctest::Approx(entry["sum"].get<double>()));
  }
}
