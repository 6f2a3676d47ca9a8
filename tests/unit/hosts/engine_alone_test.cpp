// SPDX-License-Identifier: Apache-2.0
// Requests one after the other in the one slot of an engine, as `run` and `chat` make them: on
// capsules, resumed, and cancelled while their prompt is read. Each gives what it gives alone.
#include <cstdlib>
#include <filesystem>
#include <frt/io/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine_world.hpp"

namespace {

using namespace frt::test;
using frt::host::CapsuleRegistry;
using frt::host::Engine;
using frt::host::EngineAccess;
using frt::host::EngineRequest;
using frt::host::Finish;
using frt::host::GenerationReader;
using frt::host::GenerationResult;
using frt::host::Next;
using frt::host::PrefixAction;
using frt::host::Session;

constexpr uint64_t kChunk = EngineWorld::kChunk;
constexpr const char* kThreeSlots = "max_context = 256\nslots = 3\npage_rows = 0";

// Of one conversation that keeps nothing.
EngineRequest talk(Tokens prompt, uint64_t max_new) {
  EngineRequest request = asking(std::move(prompt), max_new);
  request.affinity = "talk";
  request.keep = false;
  return request;
}

EngineRequest resuming(uint64_t max_new) {
  EngineRequest request = talk({}, max_new);
  request.resumes = true;
  return request;
}

class OneSlot {
 public:
  explicit OneSlot(const EngineWorld& world, CapsuleRegistry* registry = nullptr)
      : engine(world.model, registry, options()) {}

  void with(const std::function<void(Session&)>& work) {
    engine.call([&](EngineAccess& access) { work(*access.claim_session("", "talk", nullptr)); });
  }
  Tokens held() {
    Tokens tokens;
    with([&](const Session& session) { tokens = session.journal().tokens(); });
    return tokens;
  }
  std::string last_capsule() {
    std::string name;
    with([&](const Session& session) { name = session.boundaries().back().capsule; });
    return name;
  }

  Engine engine;

 private:
  static frt::host::EngineOptions options() {
    frt::host::EngineOptions options = engine_options();
    options.slots = 1;
    return options;
  }
};

// Cancels a request when so many tokens of its prompt are read.
class Canceller final : public Told {
 public:
  Canceller(Engine& engine, uint64_t at) : engine_(engine), at_(at) {}
  void on_prefill(uint64_t done, uint64_t total) override {
    Told::on_prefill(done, total);
    if (done >= at_) engine_.cancel(1);
  }

 private:
  Engine& engine_;
  uint64_t at_;
};

}  // namespace

TEST_CASE("a request in a slot that served another gives the tokens of a cold one") {
  EngineWorld world(kThreeSlots);
  std::vector<EngineRequest> requests;
  std::vector<Tokens> warm;
  {
    OneSlot slot(world);
    generate(slot.engine, talk(some_tokens(21, 1), 30));
    REQUIRE(slot.held().size() > 40);
    // A long tail is read in several chunks; only the first begins the request.
    for (const int32_t tail : {1, 5, 40}) {
      requests.push_back(talk(joined(slot.held(), some_tokens(tail, 2)), 24));
      const GenerationResult result = generate(slot.engine, requests.back());
      CHECK(result.prefix.action == PrefixAction::kContinue);
      warm.push_back(result.tokens);
    }
  }
  for (std::size_t i = 0; i < warm.size(); ++i) CHECK(warm[i] == world.alone(requests[i]).tokens);
}

TEST_CASE("a request on a restored capsule of another gives the tokens of a cold one") {
  EngineWorld world(kThreeSlots);
  const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
  EngineRequest next;
  {
    OneSlot first(world, registry.get());
    EngineRequest request = talk(some_tokens(21, 3), 30);
    request.keep = true;
    generate(first.engine, request);
    next = talk(joined(first.held(), some_tokens(9, 4)), 24);
  }
  Tokens restored;
  {
    OneSlot second(world, registry.get());
    const GenerationResult result = generate(second.engine, next);
    CHECK(result.prefix.action == PrefixAction::kRestore);
    restored = result.tokens;
  }
  CHECK(restored == world.alone(next).tokens);
}

TEST_CASE("a request that resumes goes on as if the one before had not ended") {
  EngineWorld world(kThreeSlots);
  const Alone whole = world.alone(talk(some_tokens(21, 5), 40));
  const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
  OneSlot slot(world, registry.get());
  // Behind a written token, behind none, and in a slot that served another meanwhile.
  for (const uint64_t written : {15, 0, 1}) {
    CAPTURE(written);
    EngineRequest request = talk(some_tokens(21, 5), written);
    request.keep = true;
    request.reuse = false;
    Tokens tokens = generate(slot.engine, request).tokens;
    CHECK(tokens.size() == written);
    if (written == 15) {
      const std::string capsule = slot.last_capsule();
      generate(slot.engine, talk(some_tokens(30, 6), 20));
      slot.with([&](Session& session) { session.restore(capsule); });
    }
    const GenerationResult more = generate(slot.engine, resuming(40 - written));
    CHECK(more.finish == Finish::kLength);
    CHECK(more.prompt_tokens == 0);
    CHECK(more.prefix.reused >= 21);
    CHECK(joined(tokens, more.tokens) == whole.tokens);
    CHECK(std::equal(more.log_probabilities.begin(), more.log_probabilities.end(),
                     whole.log_probabilities.begin() + static_cast<std::ptrdiff_t>(written)));
  }
  // Nothing more is asked for, and nothing is written.
  const Tokens held = slot.held();
  CHECK(generate(slot.engine, resuming(0)).finish == Finish::kLength);
  CHECK(slot.held() == held);
}

TEST_CASE("a request that resumes ends with the context") {
  EngineWorld world("max_context = 64\nslots = 1\npage_rows = 0");
  const Tokens whole = world.alone(talk(some_tokens(50, 5), 100)).tokens;
  OneSlot slot(world);
  Tokens tokens = generate(slot.engine, talk(some_tokens(50, 5), 6)).tokens;
  const GenerationResult more = generate(slot.engine, resuming(100));
  CHECK(more.finish == Finish::kContext);
  CHECK(joined(tokens, more.tokens) == whole);
  const GenerationResult none = generate(slot.engine, resuming(100));
  CHECK(none.finish == Finish::kContext);
  CHECK(none.tokens.empty());
}

TEST_CASE("a request resumes what its conversation's slot holds and nothing else") {
  EngineWorld world(kThreeSlots);
  OneSlot slot(world);
  CHECK(status_of([&] { generate(slot.engine, resuming(4)); }) == FRT_ERR_BAD_STATE);
  generate(slot.engine, talk(some_tokens(20, 1), 4));
  EngineRequest other = resuming(4);
  other.owner = "somebody";
  CHECK(status_of([&] { generate(slot.engine, other); }) == FRT_ERR_BAD_STATE);
  const auto refused = [&](const std::function<void(EngineRequest&)>& change) {
    EngineRequest request = resuming(4);
    change(request);
    return status_of([&] { generate(slot.engine, request); }) == FRT_ERR_INVALID_ARGUMENT;
  };
  CHECK(refused([](EngineRequest& request) { request.prompt = {1}; }));
  CHECK(refused([](EngineRequest& request) { request.affinity.clear(); }));
  CHECK(refused([](EngineRequest& request) { request.choices = 2; }));
  CHECK(refused([](EngineRequest& request) { request.top_tokens = 1; }));
  CHECK(refused([](EngineRequest& request) { request.score_prompt = true; }));
  CHECK(refused([](EngineRequest& request) { request.resumes = false; }));
  // The slot was not touched; one that waits for its conversation's answer goes on behind it.
  CHECK(generate(slot.engine, resuming(4)).tokens.size() == 4);
  const auto first = submit(slot.engine, talk(joined(slot.held(), {7, 8, 9}), 30));
  const auto second = submit(slot.engine, resuming(5));
  second->wait();
  CHECK(first->tokens().size() == 30);
  CHECK(second->tokens().size() == 5);
}

TEST_CASE("a prompt that is cancelled goes on where it was, and gives what it gives cold") {
  EngineWorld world(kThreeSlots);
  const EngineRequest request = talk(some_tokens(100, 7), 12);
  const Tokens whole = world.alone(request).tokens;
  for (const bool keep : {false, true}) {
    for (const uint64_t chunks : {0, 1, 3}) {
      CAPTURE(chunks);
      const auto registry = world.registry({uint64_t{1} << 30, 0, 0, {}});
      {
        OneSlot slot(world, registry.get());
        const auto told = std::make_shared<Canceller>(slot.engine, chunks * kChunk);
        EngineRequest stopped = request;
        stopped.keep = keep;
        slot.engine.submit(stopped, told);
        told->wait();
        CHECK(told->result().finish == Finish::kCancelled);
        CHECK(told->tokens().empty());
        const uint64_t read = told->result().prompt_read;
        CHECK(told->result().prompt_tokens == 100);
        CHECK(read % kChunk == 0);
        CHECK(read >= chunks * kChunk);
        CHECK(read < 100);
        CHECK(slot.held().size() == read);
        CHECK(status_of([&] { generate(slot.engine, resuming(4)); }) ==
              (read > 0 ? FRT_ERR_INVALID_ARGUMENT : FRT_ERR_BAD_STATE));
        // What was refused costs the slot nothing: its prompt goes on where it was.
        CHECK(slot.held().size() == read);
        if (!keep) {
          const GenerationResult rest = generate(slot.engine, request);
          CHECK(rest.prefix.reused == read);
          CHECK(rest.tokens == whole);
        }
      }
      // What was read is a capsule, if it was to be kept.
      OneSlot second(world, registry.get());
      const GenerationResult again = generate(second.engine, request);
      CHECK((again.prefix.action == PrefixAction::kRestore) == (keep && again.prefix.reused > 0));
      CHECK(again.tokens == whole);
    }
  }
  // In its slot.
  OneSlot slot(world);
  const auto told = std::make_shared<Canceller>(slot.engine, 2 * kChunk);
  slot.engine.submit(request, told);
  told->wait();
  const GenerationResult again = generate(slot.engine, request);
  CHECK(again.prefix.reused == told->result().prompt_read);
  CHECK(again.prefix.reused >= 2 * kChunk);
  CHECK(again.tokens == whole);
}

TEST_CASE("a prompt that is cancelled leaves nothing to another prompt") {
  EngineWorld world(kThreeSlots);
  const EngineRequest other = talk(some_tokens(50, 9), 12);
  const Tokens whole = world.alone(other).tokens;
  OneSlot slot(world);
  const auto told = std::make_shared<Canceller>(slot.engine, 3 * kChunk);
  slot.engine.submit(talk(some_tokens(100, 8), 12), told);
  told->wait();
  CHECK(generate(slot.engine, other).tokens == whole);
}

TEST_CASE("a capsule that cannot be used now hides no shorter one, and costs the slot nothing") {
  EngineWorld world(kThreeSlots);
  const frt_fingerprint_field field{"test", "1"};
  world.model.capsules().bind({&field, 1});
  struct Folder {
    std::string path = "/tmp/frt-engine-XXXXXX";
    Folder() { REQUIRE(mkdtemp(path.data())); }
    ~Folder() { std::filesystem::remove_all(path); }
  } folder;
  {
    const auto registry = world.registry({0, 0, 0, folder.path});
    OneSlot writer(world, registry.get());
    for (const auto& [name, length] : {std::pair("short", 32), std::pair("long", 64)}) {
      const EngineRequest request = talk(some_tokens(length, 21), 0);
      generate(writer.engine, request);
      writer.with([&, &name = name](Session& session) {
        session.save(name, request.sampling, nlohmann::ordered_json::object(), false);
      });
    }
  }
  const auto registry = world.registry({0, 0, 0, folder.path});
  std::filesystem::permissions(folder.path + "/long.capsule", std::filesystem::perms::group_write,
                               std::filesystem::perm_options::add);
  OneSlot reader(world, registry.get());
  const GenerationResult restored = generate(reader.engine, talk(some_tokens(80, 21), 1));
  CHECK(restored.prefix.action == PrefixAction::kRestore);
  CHECK(restored.prefix.capsule == "short");
  // What the slot holds serves, too.
  reader.with([](Session& session) { session.clear(); });
  generate(reader.engine, talk(some_tokens(48, 21), 0));
  const GenerationResult continued = generate(reader.engine, talk(some_tokens(80, 21), 1));
  CHECK(continued.prefix.action == PrefixAction::kContinue);
  std::size_t notices = 0;
  reader.engine.call(
      [&](EngineAccess& access) { notices = access.registry()->take_notices().size(); });
  CHECK(notices >= 2);
}

TEST_CASE("who waits for a request reads it on his own thread, and ends it where he likes") {
  EngineWorld world(kThreeSlots);
  const EngineRequest request = talk(some_tokens(50, 11), 60);
  const Tokens whole = world.alone(request).tokens;
  OneSlot slot(world);
  const auto here = std::this_thread::get_id();
  Tokens seen;
  std::vector<uint64_t> done;
  GenerationReader reader;
  reader.on_token = [&](int32_t id) {
    CHECK(std::this_thread::get_id() == here);
    seen.push_back(id);
    return true;
  };
  reader.on_prefill = [&](uint64_t read, uint64_t total) {
    CHECK(total == 50);
    done.push_back(read);
  };
  CHECK(generate(slot.engine, request, reader).tokens == whole);
  CHECK(seen == whole);
  REQUIRE_FALSE(done.empty());
  CHECK(done.back() == 50);
  CHECK(std::ranges::is_sorted(done));
  // The text ends where the engine's thread is told so, with not a token more.
  reader = {};
  std::size_t count = 0;
  reader.ends = [&](int32_t, float) { return ++count == 7 ? Next::kStop : Next::kContinue; };
  const GenerationResult stopped = generate(slot.engine, request, reader);
  CHECK(stopped.finish == Finish::kStop);
  CHECK(stopped.tokens == Tokens(whole.begin(), whole.begin() + 7));
  // Cancelled by the reader, or by somebody whom he asks.
  const EngineRequest endless = talk(some_tokens(50, 11), 200);
  reader = {};
  reader.on_token = [&](int32_t) { return false; };
  CHECK(generate(slot.engine, endless, reader).finish == Finish::kCancelled);
  reader = {};
  reader.cancelled = [] { return true; };
  CHECK(generate(slot.engine, endless, reader).finish == Finish::kCancelled);
  // An exception comes out of generate(), whichever thread it was thrown on.
  struct Problem {};
  for (const bool on_engine : {true, false}) {
    reader = {};
    if (on_engine) reader.ends = [](int32_t, float) -> Next { throw Problem(); };
    if (!on_engine) reader.on_token = [](int32_t) -> bool { throw Problem(); };
    CHECK_THROWS_AS(generate(slot.engine, endless, reader), Problem);
    CHECK(generate(slot.engine, request).tokens == whole);
  }
}

TEST_CASE("an engine of some of the model's slots leaves the others alone") {
  EngineWorld world(kThreeSlots);
  frt::host::EngineOptions options = engine_options();
  options.slots = 2;
  {
    Engine engine(world.model, nullptr, options);
    CHECK(engine.stats().slots == 2);
    std::vector<std::shared_ptr<Told>> told;
    for (int32_t i = 0; i < 4; ++i) told.push_back(submit(engine, asking(some_tokens(9, i), 20)));
    for (const auto& each : told) {
      each->wait();
      CHECK(each->tokens().size() == 20);
    }
  }
  options.slots = 4;
  CHECK(status_of([&] { Engine engine(world.model, nullptr, options); }) == FRT_ERR_OUT_OF_RANGE);
}

TEST_CASE("an integer of 30 digits in a tool call stands in the prompt") {
  EngineWorld world("max_context = 256", FRT_FIXTURES_DIR "/demo");
  const std::string digits = "123456789012345678901234567890";
  const auto messages = frt::io::parse_json(
      R"([{"role": "user", "content": "pay"},
          {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
              {"name": "pay", "arguments": {"amount": )" +
          digits + "}}}]}]",
      "messages");
  CHECK(world.model.render(messages, {}, {}).text.find("\n" + digits + "\n") != std::string::npos);
}
