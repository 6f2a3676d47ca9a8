// SPDX-License-Identifier: Apache-2.0
// Raw observations: what is refused, with which words, and that the policy goes on afterwards.
#include <cmath>
#include <functional>
#include <limits>

#include "policy_driver.hpp"

using namespace frt::test;

namespace {

struct Client {
  Client()
      : rig(policy_checkpoint("tiny/openpi"),
            "activations = \"f32\"\npreset = \"pi05_libero\"" + tokenizer_option(), "", 0, "",
            "frt.pi05"),
        driver(rig),
        table(rig.extension<frt_observation_v1>(FRT_EXT_OBSERVATION)),
        image(40 * 64 * 3, 100),
        wrist(56 * 56 * 3, 50),
        state(8, 0.25f) {
    arrays = {array("observation/image", image.data(), FRT_DTYPE_U8, {40, 64, 3}),
              array("observation/wrist_image", wrist.data(), FRT_DTYPE_U8, {56, 56, 3}),
              array("observation/state", state.data(), FRT_DTYPE_F32, {8}),
              array("unknown", state.data(), FRT_DTYPE_F32, {8})};
    observed.struct_size = sizeof(observed);
  }

  static frt_array array(const char* name, const void* data, frt_dtype dtype,
                         std::vector<int64_t> shape) {
    frt_array out{};
    out.name = name;
    out.data = data;
    out.dtype = dtype;
    out.rank = static_cast<uint32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), out.shape);
    return out;
  }

  frt_status write() {
    frt_observation observation{};
    observation.struct_size = sizeof(observation);
    observation.array_count = static_cast<uint32_t>(arrays.size());
    observation.arrays = arrays.data();
    observation.prompt = prompt;
    observation.prompt_tokens = tokens.empty() ? nullptr : tokens.data();
    observation.prompt_token_count = static_cast<uint32_t>(tokens.size());
    return table->write(rig.model, &observation, driver.stream, &observed, &error);
  }
  // The chunk that answers what was observed.
  std::vector<float> infer() const {
    frt_policy_shape shape{};
    shape.struct_size = sizeof(shape);
    shape.views = observed.views;
    shape.prompt = observed.prompt;
    return driver.infer(shape);
  }
  void refused(frt_status status, const char* text) {
    CAPTURE(error.message);
    CHECK(write() == status);
    CHECK(std::string(error.message).find(text) != std::string::npos);
  }

  ModelRig rig;
  PolicyDriver driver;
  const frt_observation_v1* table;
  std::vector<uint8_t> image, wrist;
  std::vector<float> state;
  std::vector<frt_array> arrays;
  const char* prompt = "pick up the cup";
  std::vector<int32_t> tokens;
  frt_observed observed{};
  frt_error error{};
};

}  // namespace

TEST_CASE("an observation becomes actions of the robot") {
  Client client;
  frt_observation_info info{};
  info.struct_size = sizeof(info);
  REQUIRE(client.table->info(client.rig.model, &info) == FRT_OK);
  CHECK(info.action_dim == 7);
  CHECK(info.state_dim == 8);
  CHECK(std::string(info.names).find("observation/wrist_image") != std::string::npos);
  REQUIRE(client.write() == FRT_OK);
  CHECK(client.observed.views == 2);
  const std::vector<float> actions = client.infer();
  std::vector<double> robot(uint64_t{client.driver.info.horizon} * info.action_dim);
  REQUIRE(client.table->finish(client.rig.model, &client.observed, actions.data(), robot.data(),
                               &client.error) == FRT_OK);
  for (const double value : robot) CHECK(std::isfinite(value));
  CHECK(client.rig.context.counters().captures_since_ready == 0);
}

TEST_CASE("the same image as planes, and the same state as doubles, mean the same") {
  Client client;
  REQUIRE(client.write() == FRT_OK);
  const std::vector<float> rows = client.infer();
  std::vector<uint8_t> planes(client.image.size());
  for (std::size_t i = 0; i < 40 * 64; ++i) {
    for (std::size_t c = 0; c < 3; ++c) planes[c * 40 * 64 + i] = client.image[i * 3 + c];
  }
  const std::vector<double> state(8, 0.25);
  client.arrays[0] = Client::array("observation/image", planes.data(), FRT_DTYPE_U8, {3, 40, 64});
  client.arrays[2] = Client::array("observation/state", state.data(), FRT_DTYPE_F64, {8});
  REQUIRE(client.write() == FRT_OK);
  CHECK(client.infer() == rows);
}

TEST_CASE("token ids are taken instead of an instruction") {
  Client client;
  client.tokens = {2, 613, 610, 513, 108};
  client.prompt = nullptr;
  REQUIRE(client.write() == FRT_OK);
  CHECK(client.observed.prompt == 5);
  CHECK(client.driver.read<int32_t>(client.driver.info.prompt_tokens, 5) == client.tokens);
}

TEST_CASE("a tag can claim the other advantage, where there is one") {
  const ModelRig rig(policy_checkpoint("tiny/openpi"),
                     "activations = \"f32\"\npreset = \"pi05_libero\"" + tokenizer_option(), "", 0,
                     "", "frt.recap_cfg");
  const PolicyDriver driver(rig);
  const auto* table = rig.extension<frt_observation_v1>(FRT_EXT_OBSERVATION);
  Client client;
  const auto prompt_of = [&](const char* options, uint32_t branch) {
    frt_observation observation{};
    observation.struct_size = sizeof(observation);
    observation.array_count = static_cast<uint32_t>(client.arrays.size());
    observation.arrays = client.arrays.data();
    observation.prompt = client.prompt;
    observation.options = options;
    CHECK(table->write(rig.model, &observation, driver.stream, &client.observed, &client.error) ==
          FRT_OK);
    const uint32_t most = driver.info.max_prompt;
    std::vector<int32_t> ids = driver.read<int32_t>(driver.info.prompt_tokens, uint64_t{2} * most);
    const auto length = driver.read<int32_t>(driver.info.prompt_length, 2)[branch];
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(branch * most);
    return std::vector<int32_t>(first, first + length);
  };
  CHECK(prompt_of("{\"positive\": true}", 0) == prompt_of(nullptr, 0));
  CHECK(prompt_of("{\"positive\": false}", 0) != prompt_of(nullptr, 0));
  CHECK(prompt_of("{\"positive\": false}", 1) == prompt_of(nullptr, 1));  // it has no tag
  frt_observation observation{};
  observation.struct_size = sizeof(observation);
  observation.options = "{\"positive\": 1}";
  CHECK(table->write(rig.model, &observation, driver.stream, &client.observed, &client.error) ==
        FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("what a robot must not be driven with is refused, and the next observation works") {
  const std::pair<std::function<void(Client&)>, std::pair<frt_status, const char*>> cases[] = {
      {[](Client& c) { c.state[3] = std::nanf(""); }, {FRT_ERR_INVALID_ARGUMENT, "NaN"}},
      {[](Client& c) { c.state[0] = std::numeric_limits<float>::infinity(); },
       {FRT_ERR_INVALID_ARGUMENT, "observation/state"}},
      {[](Client& c) { c.arrays[2].shape[0] = 7; }, {FRT_ERR_INVALID_ARGUMENT, "expected 8"}},
      {[](Client& c) { c.arrays[2].name = "state"; }, {FRT_ERR_NOT_FOUND, "observation/state"}},
      {[](Client& c) { c.arrays[1].name = "wrist"; },
       {FRT_ERR_NOT_FOUND, "observation/wrist_image"}},
      {[](Client& c) { c.arrays[0].rank = 2; }, {FRT_ERR_INVALID_ARGUMENT, "[height, width, 3]"}},
      {[](Client& c) { c.arrays[0].dtype = FRT_DTYPE_I32; }, {FRT_ERR_INVALID_ARGUMENT, "type"}},
      {[](Client& c) { c.arrays[0].shape[0] = 0; }, {FRT_ERR_INVALID_ARGUMENT, "empty"}},
      {[](Client& c) { c.arrays[0].shape[0] = -1; }, {FRT_ERR_INVALID_ARGUMENT, "-1 as a size"}},
      {[](Client& c) { c.arrays[0].data = nullptr; }, {FRT_ERR_INVALID_ARGUMENT, "has no data"}},
      {[](Client& c) { c.prompt = nullptr; }, {FRT_ERR_NOT_FOUND, "prompt"}},
      {[](Client& c) {
         c.prompt = nullptr;
         c.tokens.assign(201, 5);
       },
       {FRT_ERR_OUT_OF_RANGE, "201"}},
      {[](Client& c) { c.tokens.assign(2, 5); }, {FRT_ERR_INVALID_ARGUMENT, "give one of them"}},
  };
  Client client;
  for (const auto& [spoil, expected] : cases) {
    const std::vector<frt_array> arrays = client.arrays;
    const std::vector<float> state = client.state;
    spoil(client);
    client.refused(expected.first, expected.second);
    client.arrays = arrays;
    client.state = state;
    std::copy(state.begin(), state.end(), client.state.begin());
    client.arrays[2].data = client.state.data();
    client.arrays[3].data = client.state.data();
    client.prompt = "pick up the cup";
    client.tokens.clear();
    REQUIRE(client.write() == FRT_OK);
  }
}

TEST_CASE("actions that are not numbers never reach the robot") {
  Client client;
  REQUIRE(client.write() == FRT_OK);
  const std::vector<float> right = client.infer();
  // The last one is a value that the robot does not have.
  for (const std::size_t wrong : {std::size_t{5}, right.size() - 1}) {
    CAPTURE(wrong);
    std::vector<float> actions = right;
    actions[wrong] = std::nanf("");
    std::vector<double> robot(uint64_t{client.driver.info.horizon} * 7, 0.5);
    CHECK(client.table->finish(client.rig.model, &client.observed, actions.data(), robot.data(),
                               &client.error) == FRT_ERR_FORMAT);
    CHECK(std::string(client.error.message).find("must not be executed") != std::string::npos);
    CHECK(robot == std::vector<double>(robot.size(), 0.5));
  }
}

TEST_CASE("without statistics observations are refused with where to get them") {
  const ModelRig rig(policy_checkpoint("mid/openpi"), tokenizer_option(), "", 0, "", "frt.pi05");
  const auto* table = rig.extension<frt_observation_v1>(FRT_EXT_OBSERVATION);
  const PolicyDriver driver(rig);
  frt_observation observation{};
  observation.struct_size = sizeof(observation);
  frt_observed observed{};
  observed.struct_size = sizeof(observed);
  frt_error error{};
  CHECK(table->write(rig.model, &observation, driver.stream, &observed, &error) ==
        FRT_ERR_BAD_STATE);
  CHECK(std::string(error.message).find("norm_stats") != std::string::npos);
}
