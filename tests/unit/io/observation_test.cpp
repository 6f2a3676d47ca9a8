// SPDX-License-Identifier: Apache-2.0
// frt/observation.hpp: what a host may not give is refused before anybody reads it.
#include <doctest/doctest.h>

#include <frt/observation.hpp>

#include <functional>
#include <string>

namespace {

const float kValues[6] = {};
const int32_t kIds[2] = {3, 4};

struct Given {
  frt_array array = {"observation/state", kValues, FRT_DTYPE_F32, 2, {2, 3, -7, 99}};
  frt_observation observation{};

  Given() {
    observation.struct_size = sizeof(observation);
    observation.array_count = 1;
    observation.arrays = &array;
  }
};

std::string refusal(const std::function<void(Given&)>& change,
                    frt_status status = FRT_ERR_INVALID_ARGUMENT) {
  Given given;
  change(given);
  try {
    frt::read_observation(&given.observation, "a test");
  } catch (const frt::Error& error) {
    CHECK(error.status() == status);
    return error.what();
  }
  return "taken";
}

}  // namespace

TEST_CASE("an observation that keeps the rules is taken") {
  for (const auto& change : std::initializer_list<std::function<void(Given&)>>{
           [](Given&) {},
           [](Given& g) {
             g.observation.array_count = 0;
             g.observation.arrays = nullptr;
           },
           [](Given& g) {
             g.array.shape[1] = 0;
             g.array.data = nullptr;
           },
           [](Given& g) { g.array.rank = 0; }, [](Given& g) { g.array.dtype = FRT_DTYPE_BOOL; },
           [](Given& g) { g.observation.prompt = ""; },
           [](Given& g) {
             g.observation.prompt_tokens = kIds;
             g.observation.prompt_token_count = 2;
           }}) {
    CHECK(refusal(change) == "taken");
  }
}

TEST_CASE("NULL, impossible shapes and an instruction that is given twice are refused by name") {
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
  };
  CHECK(has(refusal([](Given& g) { g.observation.arrays = nullptr; }), "array_count without"));
  CHECK(has(refusal([](Given& g) { g.observation.array_count = 5000; }), "5000 arrays"));
  CHECK(has(refusal([](Given& g) { g.array.name = nullptr; }), "array 0 has no name"));
  CHECK(has(refusal([](Given& g) { g.array.data = nullptr; }), "'observation/state' has no data"));
  CHECK(has(refusal([](Given& g) { g.array.dtype = 99; }, FRT_ERR_UNSUPPORTED),
            "'observation/state' has the type 99, which this version does not know"));
  CHECK(has(refusal([](Given& g) { g.array.dtype = FRT_DTYPE_NONE; }), "has the type 0"));
  CHECK(has(refusal([](Given& g) { g.array.dtype = FRT_DTYPE_U4; }), "has the type 18"));
  CHECK(has(refusal([](Given& g) { g.array.rank = FRT_ARRAY_MAX_RANK + 1; }), "dimensions"));
  CHECK(has(refusal([](Given& g) { g.array.shape[0] = -1; }), "has -1 as a size"));
  CHECK(has(refusal([](Given& g) { g.array.shape[0] = int64_t{1} << 40; }), "2^40"));
  CHECK(has(refusal([](Given& g) { g.observation.prompt_tokens = kIds; }), "without ids"));
  CHECK(has(refusal([](Given& g) { g.observation.prompt_token_count = 1; }),
            "without prompt_tokens"));
  CHECK(has(refusal([](Given& g) {
              g.observation.prompt_tokens = kIds;
              g.observation.prompt_token_count = FRT_OBSERVATION_MAX_PROMPT + 1;
            }),
            "67108865 prompt_tokens"));
  const std::string endless(FRT_OBSERVATION_MAX_PROMPT, 'a');
  CHECK(
      has(refusal([&](Given& g) { g.observation.prompt = endless.c_str(); }), "has no end within"));
  CHECK(has(refusal([](Given& g) {
              g.observation.prompt = "go";
              g.observation.prompt_tokens = kIds;
              g.observation.prompt_token_count = 2;
            }),
            "give one of them"));
}
