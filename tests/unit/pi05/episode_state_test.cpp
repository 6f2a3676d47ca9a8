// SPDX-License-Identifier: Apache-2.0
// The state of a policy as capsules: whatever came in between, what is restored goes on bit for
// bit, between observe and act, too; in other slots, and in other processes by files.

#include <filesystem>
#include <frt/capsule.hpp>
#include <frt/core/capsules.hpp>

#include "../scratch_folder.hpp"
#include "policy_driver.hpp"

using namespace frt::test;

namespace {

constexpr const char* kOptions = "activations = \"f32\"\nprompt_buckets = \"8,32\"\nslots = 3";

class Episode {
 public:
  explicit Episode(const std::string& checkpoint = "tiny/openpi",
                   const std::string& options = kOptions)
      : rig(policy_checkpoint(checkpoint), options, "", 0, "", "frt.recap_cfg"),
        driver(rig),
        verbs(frt::core::capsules_table(), rig.context, driver.info.state) {
    frt_error error{};
    frt::check(rig.extension<frt_capsule_v1>(FRT_EXT_CAPSULE)
                   ->fingerprint(rig.model, &fields_, &field_count_, &error),
               error);
    verbs.bind({fields_, field_count_});
  }

  // Everything that an inference reads, depending on the seed.
  void begin(uint64_t seed) const {
    driver.fill(seed);
    std::vector<int32_t> ids(5 + seed % 3);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(20 + 7 * i + seed % 11);
    }
    driver.set_tokens(0, ids);
    driver.set_tokens(1, {2, 50, 60});
    const float strength = 1.5f + 0.25f * static_cast<float>(seed % 3);
    frt_error error{};
    frt::check(driver.role->set_guidance(rig.model, &strength, 1, driver.stream, &error), error);
    const std::vector<float> rest(3 * driver.info.action_dim,
                                  0.1f * static_cast<float>(seed % 5) - 0.2f);
    frt_policy_previous previous{};
    previous.struct_size = sizeof(previous);
    previous.mode = seed % 2 ? FRT_CONTINUE_GUIDED : FRT_CONTINUE_LOCKED;
    previous.delay = 1;
    previous.execution_horizon = previous.rows = 3;
    previous.actions = rest.data();
    frt::check(driver.role->set_continuation(rig.model, &previous, driver.stream, &error), error);
  }
  static frt_policy_shape shape() { return PolicyDriver::shape(3, 8, 2); }
  void observe() const { driver.observe(shape()); }
  void vision() const { driver.vision(shape()); }
  void prefix() const { driver.prefix(shape()); }
  std::vector<float> act() const { return driver.act(shape()); }
  std::vector<float> infer() const { return driver.infer(shape()); }
  std::vector<float> chunk() const { return driver.actions(shape()); }
  uint64_t captures() const { return rig.context.counters().captures_since_ready; }

  ModelRig rig;
  PolicyDriver driver;
  frt::Capsules verbs;

 private:
  const frt_fingerprint_field* fields_ = nullptr;
  uint64_t field_count_ = 0;
};

using Folder = frt::test::ScratchFolder;

}  // namespace

TEST_CASE("what is restored between observe and act makes the same chunk, bit for bit") {
  const Episode episode;
  const frt::Stream& stream = episode.driver.stream;
  for (const frt_space space : {FRT_SPACE_DEVICE, FRT_SPACE_HOST_PINNED}) {
    episode.begin(1);
    episode.observe();
    const frt::Capsule between = episode.verbs.snapshot(0, 0, space, stream);
    const std::vector<float> expected = episode.act();
    const frt::Capsule after = episode.verbs.snapshot(0, 0, space, stream);
    for (const uint64_t seed : {2u, 3u, 4u}) {
      episode.begin(seed);
      CHECK(episode.infer() != expected);
      between.restore(0, stream);
      CHECK(episode.act() == expected);
      CHECK(episode.infer() == expected);  // the observation is there again, too
    }
    episode.begin(5);
    episode.infer();
    after.restore(0, stream);
    CHECK(episode.chunk() == expected);
  }
  CHECK(episode.captures() == 0);
}

TEST_CASE("what is restored between vision and prefix makes the same chunk, bit for bit") {
  const Episode episode;
  const frt::Stream& stream = episode.driver.stream;
  episode.begin(1);
  episode.vision();
  const frt::Capsule between = episode.verbs.snapshot(0, 0, FRT_SPACE_DEVICE, stream);
  episode.prefix();
  const std::vector<float> expected = episode.act();
  CHECK(episode.infer() == expected);
  episode.begin(2);
  episode.vision();
  between.restore(0, stream);
  episode.prefix();
  CHECK(episode.act() == expected);
}

TEST_CASE("episodes wait in other slots, fork, and go on bit for bit") {
  const Episode episode;
  const frt::Stream& stream = episode.driver.stream;
  std::vector<std::vector<float>> expected;
  for (const uint32_t slot : {1u, 2u}) {
    episode.begin(10 + slot);
    episode.observe();
    episode.verbs.fork_slot(0, 0, std::vector<uint32_t>{slot}, stream);
    expected.push_back(episode.act());
  }
  REQUIRE(expected[0] != expected[1]);
  for (const uint32_t slot : {2u, 1u, 2u}) {
    episode.verbs.fork_slot(slot, 0, std::vector<uint32_t>{0}, stream);
    CHECK(episode.act() == expected[slot - 1]);
    // Another noise on the same context is a branch; the waiting episode does not notice.
    episode.driver.set_noise(77);
    CHECK(episode.act() != expected[slot - 1]);
  }
  const frt::Capsule first = episode.verbs.snapshot(1, 0, FRT_SPACE_DEVICE, stream);
  first.fork(std::vector<uint32_t>{0, 2}, stream);
  CHECK(episode.act() == expected[0]);
  episode.begin(4);
  episode.infer();
  episode.verbs.fork_slot(2, 0, std::vector<uint32_t>{0}, stream);
  CHECK(episode.act() == expected[0]);
  CHECK(episode.captures() == 0);
}

TEST_CASE("a capsule file goes on in another process's model, and in no other model") {
  const Folder folder;
  std::vector<float> expected;
  {
    const Episode episode;
    episode.begin(6);
    episode.observe();
    episode.verbs.fingerprint();
    const frt::Capsule capsule =
        episode.verbs.snapshot(0, 0, FRT_SPACE_HOST_PINNED, episode.driver.stream);
    expected = episode.act();
    capsule.sync();
    capsule.save(folder.path, "between", "");
  }
  {
    const Episode episode;
    episode.verbs.fingerprint();
    const frt::Capsule loaded = episode.verbs.load(folder.path, "between", FRT_SPACE_HOST_PINNED);
    loaded.restore(0, episode.driver.stream);
    CHECK(episode.act() == expected);
  }
  const auto refused_by = [&](const Episode& episode) -> std::string {
    episode.verbs.fingerprint();
    try {
      episode.verbs.load(folder.path, "between", FRT_SPACE_HOST_PINNED);
    } catch (const frt::Error& error) {
      CHECK(error.status() == FRT_ERR_MISMATCH);
      return error.what();
    }
    return "";
  };
  CHECK(refused_by(Episode("tiny/lerobot")).find("config") != std::string::npos);
  CHECK(refused_by(Episode("tiny/openpi", std::string(kOptions) + "\nguidance = \"serial\""))
            .find("guidance") != std::string::npos);
  CHECK(refused_by(Episode("tiny/openpi", "activations = \"f32\"\nprompt_buckets = \"8,64\""))
            .find("layout") != std::string::npos);
}
