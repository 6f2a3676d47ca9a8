// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <frt/error.hpp>
#include <frt/lm/generation_defaults.hpp>
#include <fstream>
#include <string>

using frt::Error;
using frt::models::Json;
using namespace frt::lm;

TEST_CASE("generation defaults come from the checkpoint, end ids as a list") {
  const auto folder = std::filesystem::temp_directory_path() / "frt_generation_defaults";
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& text) {
    std::ofstream(folder / "generation_config.json") << text;
  };
  write(R"({"temperature": 0.6, "top_k": 20, "eos_token_id": 5, "do_sample": true})");
  CHECK(read_generation_defaults(folder, {1}) ==
        Json::parse(R"({"temperature":0.6,"top_k":20,"stop_token_ids":[5]})"));
  write(R"({"do_sample": false, "eos_token_id": [5, 6]})");
  CHECK(read_generation_defaults(folder, {1}) ==
        Json::parse(R"({"temperature":0,"stop_token_ids":[5,6]})"));
  write(R"({"temperature": "hot"})");
  CHECK_THROWS_WITH_AS(read_generation_defaults(folder, {1}), doctest::Contains("temperature"),
                       Error);
  std::filesystem::remove_all(folder);
  CHECK(read_generation_defaults(folder, {1, 2})["stop_token_ids"] == Json::parse("[1,2]"));
}

TEST_CASE("a generation default out of its range is refused with the file and the key") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("frt_generation_ranges_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto refusal = [&](const std::string& text) -> std::string {
    std::ofstream(folder / "generation_config.json") << text;
    try {
      read_generation_defaults(folder, {1});
    } catch (const Error& error) {
      return error.status() == FRT_ERR_FORMAT ? error.what() : "another status";
    }
    return "";
  };
  for (const char* entry :
       {"\"top_k\": 4294967297", "\"top_k\": 1e10", "\"top_k\": -1", "\"top_k\": 2.5",
        "\"top_k\": 18446744073709551615", "\"top_p\": 7", "\"top_p\": 0", "\"min_p\": 1",
        "\"temperature\": -0.5", "\"temperature\": 1e300", "\"repetition_penalty\": 0",
        "\"presence_penalty\": 1e39", "\"frequency_penalty\": -1e39"}) {
    CAPTURE(entry);
    const std::string what = refusal(std::string("{") + entry + "}");
    const std::string key(entry + 1, std::string_view(entry).find('"', 1) - 1);
    CHECK(what.find("generation_config.json: " + key + " is ") != std::string::npos);
  }
  CHECK(refusal(R"({"temperature": 0, "top_p": 1, "top_k": 2147483647, "min_p": 0,
                    "repetition_penalty": 1.5, "presence_penalty": -2, "frequency_penalty": 2})") ==
        "");
  std::filesystem::remove_all(folder);
}
