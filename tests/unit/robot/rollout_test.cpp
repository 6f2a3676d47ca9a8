// SPDX-License-Identifier: Apache-2.0
// Rollouts with a real policy on the CPU backend: a tick allocates nothing (every operator new of
// this binary is counted), a reset brings everything back, nothing is captured.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/registry.hpp>
#include <frt/core/runtime.hpp>
#include <frt/core/services.hpp>
#include <frt/core/state.hpp>
#include <frt/models/safetensors_writer.hpp>
#include <new>
#include <vector>

#include "examples/handoff.hpp"
#include "examples/reach/world.hpp"
#include "reach_plugin.hpp"
#include "robot/control/rollout.hpp"

namespace {

std::atomic<uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (void* pointer = std::aligned_alloc(alignment, bytes > 0 ? bytes : alignment)) return pointer;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: the compiler would see std::free of what operator new returned, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return counted(bytes, alignof(std::max_align_t));
} catch (...) {
  return nullptr;
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}

using namespace frt;
using namespace frt::host;

namespace {

constexpr uint32_t kHorizon = 10, kExecute = 5;

// tests/robot/linear_policy.cpp on the CPU backend.
class Deployment {
 public:
  Deployment() {
    std::string pattern = (std::filesystem::temp_directory_path() / "frt-rollout-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::vector<float> weight(kHorizon * 2 * 2), prompts(5 * kHorizon * 2);
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.002f * float(i % 7) - 0.006f;
    for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i] = 0.004f * float(i % 11) - 0.02f;
    write_checkpoint(weight, prompts);
    core::RegistryOptions options;
    options.plugin_folders = {FRT_PLUGIN_DIR, FRT_BINARY_DIR "/tests/robot_plugins"};
    registry_ = std::make_unique<core::Registry>(std::move(options));
    core::ManifestRequest request;
    request.schemas = registry_.get();
    core::Manifest manifest = core::parse_manifest(R"(schema = 1
[device.cpu0]
backend = "frt.cpu"
[device.cpu0.options]
threads = 1
[model.p]
plugin = "test.linear_policy"
device = "cpu0"
checkpoint = "policy.safetensors"
)",
                                                   folder_ / "m.toml", request);
    services_ = std::make_unique<core::HostServices>(log_);
    runtime_ = std::make_unique<core::Runtime>(std::move(manifest), *registry_, *services_);
    const core::ModelSpec& spec = *runtime_->manifest().find_model("p");
    context_ = Context(core::exec_table(), runtime_->device("cpu0").context);
    const core::OpenPlugin& plugin = runtime_->model_plugin("p");
    table_ = &plugin.require<frt_model_v1>(FRT_EXT_MODEL);
    frt_model_params params{};
    params.struct_size = sizeof(params);
    params.context = context_;
    params.name = "p";
    params.checkpoint = spec.checkpoint().c_str();
    params.config = spec.options.c();
    frt_error error{};
    check(table_->create(plugin.handle(), &params, &model_, &error), error);
    context_.ready();
  }
  ~Deployment() {
    table_->destroy(model_);
    std::filesystem::remove_all(folder_);
  }
  PolicyModel policy() const { return PolicyModel(context_, table_, model_, "p"); }
  const Context& context() const { return context_; }

 private:
  void write_checkpoint(const std::vector<float>& weight, const std::vector<float>& prompts) {
    models::SafetensorsWriter writer(folder_ / "policy.safetensors");
    writer.declare("weight", FRT_DTYPE_F32, {kHorizon * 2, 2});
    writer.declare("prompts", FRT_DTYPE_F32, {5, kHorizon * 2});
    writer.write("weight", std::as_bytes(std::span(weight)));
    writer.write("prompts", std::as_bytes(std::span(prompts)));
    writer.finish();
  }
  std::filesystem::path folder_;
  core::Log log_;
  std::unique_ptr<core::Registry> registry_;
  std::unique_ptr<core::HostServices> services_;
  std::unique_ptr<core::Runtime> runtime_;
  Context context_;
  const frt_model_v1* table_ = nullptr;
  frt_model model_ = nullptr;
};

RolloutOptions rollout_options() {
  RolloutOptions options;
  options.ticks.execute = kExecute;
  options.seed = 3;
  options.record_frames = true;
  return options;
}

}  // namespace

TEST_CASE("between chunks a tick allocates nothing, in simulated and in real time") {
  const Deployment deployment;
  const PolicyModel policy = deployment.policy();
  for (const bool realtime : {false, true}) {
    PolicyRunner runner(policy);
    EpisodeBoundary boundary(core::state_table(), core::capsules_table(), runner);
    reach_test::World world;
    RolloutOptions options = rollout_options();
    options.realtime = realtime;
    options.ticks.hz = 1000;
    Rollout rollout(runner, nullptr, world, boundary, options);
    rollout.keys = [] { return OperatorKeys{}; };
    std::vector<uint64_t> at;
    at.reserve(1000);
    rollout.on_tick = [&](std::span<const double>) { at.push_back(allocations.load()); };
    EpisodeRecord record;
    const EpisodeResult result = rollout.run(0, record);
    // A machine that is busy elsewhere leaves ticks out in real time; which ones have a new chunk
    // is not known then.
    const bool whole = result.ticks == reach::World::kMaxTicks;
    REQUIRE((whole || realtime));
    const bool known = !realtime || (whole && rollout.counters().deadline_misses == 0);
    uint64_t compared = 0;
    for (std::size_t i = 2; known && i < at.size(); ++i) {
      if (i % kExecute == 0) continue;
      CHECK(at[i] - at[i - 1] == 0);
      ++compared;
    }
    if (!realtime) CHECK(compared > 20);
    CHECK(deployment.context().counters().captures_since_ready == 0);
  }
}

namespace {

// The reaching task, which notes what was allocated before each action and each look.
class CountingWorld : public Environment {
 public:
  CountingWorld() { between_ticks.reserve(1000); }
  void reset(uint64_t seed) override { world_.reset(seed); }
  const frt_observation& observe() override {
    looked_ = true;
    return world_.observe();
  }
  std::span<const uint8_t> images() const override { return world_.images(); }
  std::span<const float> state() const override { return world_.state(); }
  uint32_t action_dim() const override { return world_.action_dim(); }
  void apply(std::span<const double> action) override {
    const uint64_t now = allocations.load();
    if (!looked_) between_ticks.push_back(now - last_);
    looked_ = false;
    last_ = now;
    world_.apply(action);
  }
  bool operator_action(std::span<double> action) override { return world_.operator_action(action); }
  bool succeeded() const override { return world_.succeeded(); }
  bool over() const override { return world_.over(); }
  const std::string& instruction() const override { return world_.instruction(); }

  std::vector<uint64_t> between_ticks;  // without a look between them

 private:
  reach_test::World world_;
  uint64_t last_ = 0;
  bool looked_ = true;
};

}  // namespace

TEST_CASE("a tick of the hand-off allocates nothing, while it waits for interrupts, too") {
  const Deployment deployment;
  const PolicyModel policy = deployment.policy();
  PolicyRunner runner(policy);
  CountingWorld world;
  HandoffOptions options;
  options.ticks.hz = 500;
  options.ticks.execute = kExecute;
  options.seconds = 0.2;
  SubgoalMailbox mailbox;
  Handoff handoff(runner, world, mailbox, options);
  const HandoffResult result = handoff.run();
  CHECK(result.ticks == 100);
  CHECK(world.between_ticks.size() > 50);
  for (const uint64_t count : world.between_ticks) CHECK(count == 0);
  CHECK(deployment.context().counters().captures_since_ready == 0);
}

TEST_CASE("an episode after others is the same as before them, bit for bit") {
  const Deployment deployment;
  const PolicyModel policy = deployment.policy();
  PolicyRunner runner(policy);
  EpisodeBoundary boundary(core::state_table(), core::capsules_table(), runner);
  reach_test::World world;
  Rollout rollout(runner, nullptr, world, boundary, rollout_options());
  EpisodeRecord first, other, again;
  rollout.run(0, first);
  rollout.run(1, other);
  rollout.run(0, again);
  REQUIRE(first.chunks() == again.chunks());
  CHECK(first.chunks() == reach::World::kMaxTicks / kExecute);
  for (std::size_t i = 0; i < first.chunks(); ++i) {
    const auto a = first.network_actions(i), b = again.network_actions(i);
    CHECK(std::vector<float>(a.begin(), a.end()) == std::vector<float>(b.begin(), b.end()));
  }
  CHECK(boundary.bytes() > 3 * 28 * 28);
}

TEST_CASE(
    "an observation that is refused ends nothing: the safe action is sent, the next one counts") {
  // A sensor that gives NaN in some ticks.
  class Faulty final : public Environment {
   public:
    void reset(uint64_t seed) override {
      world_.reset(seed);
      tick_ = 0;
    }
    const frt_observation& observe() override {
      observation_ = world_.observe();
      if (tick_ < 5 || tick_ > 8) return observation_;
      arrays_.assign(observation_.arrays, observation_.arrays + observation_.array_count);
      for (frt_array& array : arrays_) {
        if (array.dtype == FRT_DTYPE_F32) array.data = broken_.data();
      }
      observation_.arrays = arrays_.data();
      return observation_;
    }
    std::span<const uint8_t> images() const override { return world_.images(); }
    std::span<const float> state() const override { return world_.state(); }
    uint32_t action_dim() const override { return world_.action_dim(); }
    void apply(std::span<const double> action) override {
      world_.apply(action);
      ++tick_;
    }
    bool operator_action(std::span<double>) override { return false; }
    bool succeeded() const override { return false; }
    bool over() const override { return world_.over(); }
    const std::string& instruction() const override { return world_.instruction(); }

   private:
    reach_test::World world_;
    uint32_t tick_ = 0;
    std::array<float, 2> broken_ = {std::nanf(""), 0.5f};
    std::vector<frt_array> arrays_;
    frt_observation observation_{};
  };
  const Deployment deployment;
  const PolicyModel policy = deployment.policy();
  PolicyRunner runner(policy);
  EpisodeBoundary boundary(core::state_table(), core::capsules_table(), runner);
  Faulty world;
  Rollout rollout(runner, nullptr, world, boundary, rollout_options());
  std::vector<double> sent;
  rollout.on_tick = [&](std::span<const double> action) { sent.push_back(action[0]); };
  EpisodeRecord record;
  const EpisodeResult result = rollout.run(0, record);
  CHECK(result.stop_reason == "task_over");
  CHECK(result.ticks == reach::World::kMaxTicks);
  CHECK(rollout.counters().refused == 4);
  CHECK(rollout.counters().deadline_misses == 4);
  CHECK(rollout.counters().safe_actions == 4);
  CHECK(record.chunks() == 1 + (reach::World::kMaxTicks - 9 + kExecute - 1) / kExecute);
  for (std::size_t tick = 5; tick < 9; ++tick) CHECK(sent[tick] == sent[4]);  // held
}

TEST_CASE("restoring brings back every input buffer, whatever was written in between") {
  const Deployment deployment;
  const PolicyModel policy = deployment.policy();
  PolicyRunner runner(policy);
  reach_test::World world;
  world.reset(1);
  runner.observe(world.observe());
  fill_normal(1, 1, runner.noise());
  runner.submit();
  runner.wait();
  const auto content = [&](frt_buffer buffer) {
    const Buffer held = Buffer::retain(policy.context(), buffer);
    return held.download<uint8_t>(held.bytes(), runner.stream());
  };
  const frt_buffer inputs[] = {policy.info().images, policy.info().proprioception,
                               policy.info().prompt_tokens, policy.info().prompt_length,
                               policy.info().noise};
  std::vector<std::vector<uint8_t>> before;
  for (const frt_buffer buffer : inputs) before.push_back(content(buffer));
  EpisodeBoundary boundary(core::state_table(), core::capsules_table(), runner);
  boundary.take();
  for (const frt_buffer buffer : inputs) {
    Recorder(runner.stream()).fill(buffer, 0, content(buffer).size(), 0xa5);
  }
  CHECK(content(inputs[0]) != before[0]);
  const uint64_t count = allocations.load();
  boundary.restore();
  CHECK(allocations.load() == count);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(content(inputs[i]) == before[i]);
}

TEST_CASE("submitting a replay and asking for it allocates nothing") {
  const Deployment deployment;
  const PolicyModel policy = deployment.policy();
  PolicyRunner runner(policy);
  reach_test::World world;
  world.reset(1);
  runner.observe(world.observe());
  runner.submit();
  runner.wait();
  const uint64_t before = allocations.load();
  for (int i = 0; i < 10; ++i) {
    fill_normal(1, uint64_t(i), runner.noise());
    runner.submit();
    runner.ready();
    runner.wait();
  }
  CHECK(allocations.load() == before);
}
