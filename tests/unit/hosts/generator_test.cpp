// SPDX-License-Identifier: Apache-2.0
// Requests one after the other in one slot, from capsules, and cancelled while their prompt is
// read: each gives what it gives alone.
#include <cstdlib>
#include <filesystem>
#include <frt/core/capsules.hpp>
#include <frt/core/state.hpp>
#include <frt/io/json.hpp>
#include <string>
#include <vector>

#include "lm/capsules/registry.hpp"
#include "lm/generator.hpp"
#include "model_rig.hpp"

namespace {

using frt::host::CapsuleRegistry;
using frt::host::Finish;
using frt::host::GenerationRequest;
using frt::host::GenerationResult;
using frt::host::Generator;
using frt::host::PrefixAction;
using Tokens = std::vector<int32_t>;

constexpr uint64_t kChunk = 16;

Tokens some_tokens(int32_t count, int32_t seed) {
  Tokens ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back((i * i * 31 + i * 7 + seed * 101) % 512);
  return ids;
}

Tokens joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

struct World {
  frt::test::ModelRig rig{"synthetic:qwen3.6-tiny",
                          "max_context = 256\nslots = 3\nprefill_chunk = 16\npage_rows = 0"};
  frt::host::LmModel model{
      rig.context, frt::core::state_table(), frt::core::capsules_table(), rig.table, rig.model,
      "m"};
  CapsuleRegistry registry{rig.context, model.capsules(), {uint64_t{1} << 30, 0, 0, {}}};

  Generator generator(uint32_t slot, bool with_registry = false) {
    return Generator(model, slot, with_registry ? &registry : nullptr, {"", kChunk, 1});
  }
  // In a slot that held nothing.
  GenerationResult cold(const GenerationRequest& request) { return generator(2).run(request); }
};

GenerationRequest penalised(Tokens prompt, uint64_t max_new) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_new = max_new;
  request.sampling.top_p = 1;
  request.sampling.repetition_penalty = 1.1f;
  request.sampling.presence_penalty = 1.5f;
  request.sampling.frequency_penalty = 0.25f;
  return request;
}

}  // namespace

TEST_CASE("a request in a slot that served another gives the tokens of a cold one") {
  World world;
  Generator generator = world.generator(0);
  generator.run(penalised(some_tokens(21, 1), 30));
  const Tokens fed = generator.session().journal().tokens();
  REQUIRE(fed.size() > 40);
  // A long tail is read in several chunks; only the first begins the request.
  for (const int32_t tail : {1, 5, 40}) {
    const GenerationRequest request =
        penalised(joined(generator.session().journal().tokens(), some_tokens(tail, 2)), 24);
    const GenerationResult warm = generator.run(request);
    CHECK(warm.prefix.action == PrefixAction::kContinue);
    CHECK(warm.tokens == world.cold(request).tokens);
  }
}

TEST_CASE("a request on a restored capsule of another gives the tokens of a cold one") {
  World world;
  Generator first = world.generator(0, true);
  GenerationRequest request = penalised(some_tokens(21, 3), 30);
  request.keep = true;
  first.run(request);
  const GenerationRequest next =
      penalised(joined(first.session().journal().tokens(), some_tokens(9, 4)), 24);
  Generator second = world.generator(1, true);
  const GenerationResult restored = second.run(next);
  CHECK(restored.prefix.action == PrefixAction::kRestore);
  CHECK(restored.tokens == world.cold(next).tokens);
}

TEST_CASE("a request that a capsule interrupts goes on with its own penalties") {
  World world;
  const Tokens whole = world.cold(penalised(some_tokens(21, 5), 40)).tokens;
  Generator first = world.generator(0, true);
  GenerationRequest request = penalised(some_tokens(21, 5), 15);
  request.keep = true;
  Tokens tokens = first.run(request).tokens;
  const std::string capsule = first.session().boundaries().back().capsule;
  Generator second = world.generator(1, true);
  second.run(penalised(some_tokens(30, 6), 20));
  second.session().restore(capsule);
  CHECK(joined(tokens, second.run(penalised({}, 25)).tokens) == whole);
}

TEST_CASE("a prompt that is cancelled goes on where it was, and gives what it gives cold") {
  World world;
  const GenerationRequest request = penalised(some_tokens(100, 7), 12);
  const Tokens whole = world.cold(request).tokens;
  Generator generator = world.generator(0);
  for (const uint64_t chunks : {0, 1, 3, 6}) {
    generator.session().clear();
    uint64_t asked = 0;
    GenerationRequest stopped = request;
    stopped.cancelled = [&] { return asked++ == chunks; };
    const GenerationResult result = generator.run(stopped);
    CHECK(result.finish == Finish::kCancelled);
    CHECK(result.tokens.empty());
    CHECK(result.prompt_read == chunks * kChunk);
    CHECK(generator.session().journal().size() == chunks * kChunk);
    const GenerationResult again = generator.run(request);
    CHECK(again.prefix.reused == chunks * kChunk);
    CHECK(again.tokens == whole);
  }
}

TEST_CASE("what was read of a cancelled prompt is kept as a capsule") {
  World world;
  Generator first = world.generator(0, true);
  GenerationRequest request = penalised(some_tokens(100, 12), 12);
  request.keep = true;
  uint64_t asked = 0;
  request.cancelled = [&] { return ++asked > 3; };
  CHECK(first.run(request).finish == Finish::kCancelled);
  request.cancelled = nullptr;
  const GenerationResult again = world.generator(1, true).run(request);
  CHECK(again.prefix.action == PrefixAction::kRestore);
  CHECK(again.prefix.reused == 3 * kChunk);
  CHECK(again.tokens == world.cold(request).tokens);
}

TEST_CASE("a capsule that cannot be used now hides no shorter one, and costs the slot nothing") {
  World world;
  const frt::Capsules verbs = world.model.capsules();
  const frt_fingerprint_field field{"test", "1"};
  verbs.bind({&field, 1});
  struct Folder {
    std::string path = "/tmp/frt-generator-XXXXXX";
    Folder() { REQUIRE(mkdtemp(path.data())); }
    ~Folder() { std::filesystem::remove_all(path); }
  } folder;
  const auto open = [&] {
    return CapsuleRegistry(world.rig.context, verbs, {0, 0, 0, folder.path});
  };
  GenerationRequest request = penalised(some_tokens(32, 21), 0);
  {
    CapsuleRegistry registry = open();
    Generator writer(world.model, 0, &registry, {"", kChunk, 1});
    writer.run(request);
    writer.session().save("short", request.sampling, nlohmann::ordered_json::object(), false);
    request.prompt = some_tokens(64, 21);
    writer.run(request);
    writer.session().save("long", request.sampling, nlohmann::ordered_json::object(), false);
  }
  CapsuleRegistry registry = open();
  std::filesystem::permissions(folder.path + "/long.capsule", std::filesystem::perms::group_write,
                               std::filesystem::perm_options::add);
  Generator reader(world.model, 1, &registry, {"", kChunk, 1});
  request.prompt = some_tokens(80, 21);
  const auto restored = reader.session().begin(request.prompt, true);
  CHECK(restored.action == PrefixAction::kRestore);
  CHECK(restored.capsule == "short");
  // What the slot holds serves, too.
  Generator live(world.model, 2, &registry, {"", kChunk, 1});
  request.prompt = some_tokens(48, 21);
  live.run(request);
  request.prompt = some_tokens(80, 21);
  const auto continued = live.session().begin(request.prompt, true);
  CHECK(continued.action == PrefixAction::kContinue);
  CHECK(registry.take_notices().size() >= 2);
}

TEST_CASE("a prompt that is cancelled leaves nothing to another prompt") {
  World world;
  Generator generator = world.generator(0);
  GenerationRequest stopped = penalised(some_tokens(100, 8), 12);
  uint64_t asked = 0;
  stopped.cancelled = [&] { return ++asked > 3; };
  CHECK(generator.run(stopped).finish == Finish::kCancelled);
  CHECK_THROWS_AS(generator.run(penalised({}, 4)), frt::Error);  // nothing was sampled
  const GenerationRequest other = penalised(some_tokens(50, 9), 12);
  CHECK(generator.run(other).tokens == world.cold(other).tokens);
}

TEST_CASE("a request cancelled behind its prompt's last chunk writes nothing") {
  World world;
  Generator generator = world.generator(0);
  GenerationRequest stopped = penalised(some_tokens(20, 10), 12);
  uint64_t asked = 0;
  stopped.cancelled = [&] { return ++asked > 2; };
  const GenerationResult result = generator.run(stopped);
  CHECK(result.finish == Finish::kCancelled);
  CHECK(result.tokens.empty());
  CHECK(result.prompt_read == 20);
}

TEST_CASE("progress counts the tokens that were read, from none to all") {
  World world;
  GenerationRequest request = penalised(some_tokens(50, 11), 1);
  std::vector<uint64_t> seen;
  request.on_prefill = [&](uint64_t done, uint64_t total) {
    CHECK(total == 50);
    seen.push_back(done);
  };
  world.cold(request);
  CHECK(seen == std::vector<uint64_t>{0, 0, 16, 32, 50});
}

TEST_CASE("an integer of 30 digits in a tool call stands in the prompt") {
  frt::test::ModelRig rig{FRT_FIXTURES_DIR "/demo", "max_context = 256"};
  const frt::host::LmModel model{
      rig.context, frt::core::state_table(), frt::core::capsules_table(), rig.table, rig.model,
      "m"};
  const std::string digits = "123456789012345678901234567890";
  const auto messages = frt::io::parse_json(
      R"([{"role": "user", "content": "pay"},
          {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
              {"name": "pay", "arguments": {"amount": )" +
          digits + "}}}]}]",
      "messages");
  CHECK(model.render(messages, {}, {}).text.find("\n" + digits + "\n") != std::string::npos);
}
