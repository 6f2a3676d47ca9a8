// SPDX-License-Identifier: Apache-2.0
// Steps of a model that has a role and nothing inside: what is submitted, and what is refused.
#include "lm/step_runner.hpp"

#include "hollow_model.hpp"

namespace frt::host {
namespace {

using frt::test::caught;

using frt::test::hollow::kBatch;
using frt::test::hollow::kChunk;
using World = frt::test::HollowModel;

}  // namespace

TEST_CASE(
    "a step that does not fit the model or its slot is refused before anything is submitted") {
  for (const uint32_t page_rows : {0u, 16u}) {
    World world(page_rows);
    const LmModel model = world.model();
    StepRunner runner(model);
    for (const uint32_t slot : {0u, 1u}) runner.clear(slot);
    const std::vector<int32_t> tokens(kChunk + 1, 1);
    const std::span<const int32_t> some(tokens);
    runner.wait(runner.submit_prefill(0, 0, some.first(5), false));
    const int copies = world.rig.mock->calls("copy");
    const auto refuses = [&](const char* part, auto&& step) {
      const frt_error error = caught(step);
      INFO(error.message);
      CHECK(error.code == FRT_ERR_OUT_OF_RANGE);
      CHECK(std::string(error.message).find(part) != std::string::npos);
    };
    refuses("takes 1 to 8", [&] { runner.submit_prefill(0, 5, {}, false); });
    refuses("takes 1 to 8", [&] { runner.submit_prefill(0, 5, some, false); });
    // As many as a number of 32 bits cannot tell from one.
    refuses("takes 1 to 8", [&] {
      runner.submit_prefill(0, 5, std::span(tokens.data(), (std::size_t{1} << 32) + 1), false);
    });
    refuses("position -1", [&] { runner.submit_prefill(0, -1, some.first(1), false); });
    refuses("max_context = 64", [&] { runner.submit_prefill(0, 64, some.first(1), false); });
    refuses("has 2 slots", [&] { runner.submit_prefill(2, 0, some.first(1), false); });
    refuses("room for 64", [&] { runner.submit_prefill(0, 63, some.first(2), false); });
    refuses("slot 0, which has 5", [&] { runner.submit_prefill(0, 6, some.first(1), false); });
    refuses("slot 1, which has 0", [&] { runner.submit_prefill(1, 5, some.first(1), false); });
    const auto decode = [&](std::vector<StepRunner::Entry> entries) {
      return [&runner, entries] { runner.submit_decode(entries); };
    };
    refuses("takes 1 to 2", decode({{0, 5, 1}, {0, 5, 1}, {0, 5, 1}}));
    refuses("position -1", decode({{0, -1, 1}}));
    refuses("has 2 slots", decode({{7, 0, 1}}));
    refuses("slot 0, which has 5", decode({{0, 22, 1}}));
    CHECK(world.rig.mock->calls("copy") == copies);
    runner.wait(runner.submit_prefill(0, 5, some.first(3), false));
    const StepRunner::Entry next{0, 8, -1};
    runner.wait(runner.submit_decode({&next, 1}));
  }
}

TEST_CASE("how an entry is sampled is copied with the step that changes it, and with no other") {
  World world(16);
  const LmModel model = world.model();
  StepRunner runner(model);
  const std::vector<int32_t> tokens(kChunk, 1);
  for (const uint32_t slot : {0u, 1u}) {
    runner.clear(slot);
    runner.submit_prefill(slot, 0, tokens, false);
  }
  const Buffer port = Buffer::retain(world.rig.context, world.inside.info.sampling);
  frt_sampling_params first{}, second{};
  first.temperature = 1;
  second.temperature = 2;
  int32_t position = kChunk;
  const auto temperatures = [&] {
    const std::vector<StepRunner::Entry> entries = {{0, position, -1, false, &first},
                                                    {1, position, -1, false, &second}};
    ++position;
    runner.wait(runner.submit_decode(entries));
    const auto held = port.download<frt_sampling_params>(kBatch, runner.stream());
    return std::vector<float>{held[0].temperature, held[1].temperature};
  };
  CHECK(temperatures() == std::vector<float>{1, 2});
  port.upload(std::vector<frt_sampling_params>(kBatch), runner.stream());  // nobody should do so
  CHECK(temperatures() == std::vector<float>{0, 0});
  second.temperature = 3;
  CHECK(temperatures() == std::vector<float>{0, 3});
  // Another runner may have had its turn.
  runner.set_sampling({});
  CHECK(temperatures() == std::vector<float>{1, 3});
}

TEST_CASE("a bias that names a token twice is refused before anything is submitted") {
  constexpr uint32_t kBiases = 16;
  World world(16);
  const Buffer& port = world.buffers.emplace_back(
      world.rig.context.alloc(FRT_SPACE_DEVICE, kBatch * kBiases * sizeof(frt_logit_bias), "bias"));
  world.inside.info.bias = port;
  world.inside.info.bias_capacity = kBiases;
  const LmModel model = world.model();
  StepRunner runner(model);
  for (const uint32_t slot : {0u, 1u}) runner.clear(slot);
  const std::vector<int32_t> tokens(kChunk, 1);
  const frt_sampling_params plain{};
  const std::vector<frt_logit_bias> good = {{9, 1}, {5, 2}, {7, 3}};
  const std::vector<frt_logit_bias> twice = {{9, 1}, {5, 2}, {9, 1}};
  const auto prefill = [&](uint32_t slot, const std::vector<frt_logit_bias>& bias) {
    return runner.submit_prefill(slot, 0, tokens, false, &plain, nullptr, nullptr, bias);
  };
  const auto refuses = [&](auto&& step) {
    const int copies = world.rig.mock->calls("copy");
    const frt_error error = caught(step);
    INFO(error.message);
    CHECK(error.code == FRT_ERR_INVALID_ARGUMENT);
    CHECK(std::string(error.message).find("names token 9 twice") != std::string::npos);
    CHECK(world.rig.mock->calls("copy") == copies);
  };
  refuses([&] { prefill(0, twice); });
  for (const uint32_t slot : {0u, 1u}) runner.wait(prefill(slot, good));
  const auto decode = [&](int32_t position, const std::vector<frt_logit_bias>& second) {
    const std::vector<StepRunner::Entry> entries = {
        {.slot = 0, .position = position, .token = -1, .sampling = &plain, .bias = good},
        {.slot = 1, .position = position, .token = -1, .sampling = &plain, .bias = second}};
    return runner.submit_decode(entries);
  };
  refuses([&] { decode(kChunk, twice); });
  runner.wait(decode(kChunk, good));
  // Also where the port holds a bias that begins alike.
  refuses([&] { decode(kChunk + 1, {{9, 1}, {5, 2}, {7, 3}, {9, 4}}); });
  runner.wait(decode(kChunk + 1, {{9, 1}, {5, 2}}));
}

TEST_CASE("a mask is copied for the entry that has one, which alone is sampled under it") {
  World world(16);
  world.inside.info.mask = world.buffer("mask");
  world.inside.info.mask_words = 4;
  const LmModel model = world.model();
  StepRunner runner(model);
  const std::vector<int32_t> tokens(kChunk, 1);
  const Buffer port = Buffer::retain(world.rig.context, world.inside.info.mask);
  const Buffer sampling = Buffer::retain(world.rig.context, world.inside.info.sampling);
  port.upload(std::vector<uint32_t>(8, 7), runner.stream());
  for (const uint32_t slot : {0u, 1u}) {
    runner.clear(slot);
    runner.wait(runner.submit_prefill(slot, 0, tokens, false));
  }
  const frt_sampling_params plain{};
  const std::vector<uint32_t> mask = {1, 2, 3, 4};
  int32_t position = kChunk;
  const auto step = [&](const uint32_t* first, const uint32_t* second) {
    const std::vector<StepRunner::Entry> entries = {{0, position, -1, false, &plain, first},
                                                    {1, position, -1, false, &plain, second}};
    ++position;
    runner.wait(runner.submit_decode(entries));
    const auto held = sampling.download<frt_sampling_params>(kBatch, runner.stream());
    return std::vector<uint32_t>{held[0].use_mask, held[1].use_mask};
  };
  CHECK(step(nullptr, mask.data()) == std::vector<uint32_t>{0, 1});
  CHECK(port.download<uint32_t>(8, runner.stream()) ==
        std::vector<uint32_t>{7, 7, 7, 7, 1, 2, 3, 4});
  CHECK(step(mask.data(), nullptr) == std::vector<uint32_t>{1, 0});
  CHECK(port.download<uint32_t>(8, runner.stream()) ==
        std::vector<uint32_t>{1, 2, 3, 4, 1, 2, 3, 4});
  CHECK(plain.use_mask == 0);
}

TEST_CASE("a model that takes no masks refuses one before anything is submitted") {
  World world(16);
  const LmModel model = world.model();
  StepRunner runner(model);
  runner.clear(0);
  const std::vector<int32_t> tokens(kChunk, 1);
  const int copies = world.rig.mock->calls("copy");
  const frt_sampling_params plain{};
  const uint32_t mask = 1;
  CHECK(caught([&] { runner.submit_prefill(0, 0, tokens, false, &plain, &mask); }).code ==
        FRT_ERR_UNSUPPORTED);
  CHECK(world.rig.mock->calls("copy") == copies);
  runner.wait(runner.submit_prefill(0, 0, tokens, false, &plain));
}

TEST_CASE("sampling that was set applies to the entries of a step that says nothing") {
  World world(16);
  const LmModel model = world.model();
  StepRunner runner(model);
  const std::vector<int32_t> tokens(kChunk, 1);
  const Buffer port = Buffer::retain(world.rig.context, world.inside.info.sampling);
  std::vector<frt_sampling_params> set(1);
  set[0].temperature = 4;
  runner.set_sampling(set);
  runner.clear(0);
  runner.wait(runner.submit_prefill(0, 0, tokens, false));
  CHECK(port.download<frt_sampling_params>(1, runner.stream())[0].temperature == 4);
}

}  // namespace frt::host
