// SPDX-License-Identifier: Apache-2.0
// A verify step is what its decode steps are, bit for bit: tokens, log probabilities, logits and
// the state of the slot, whatever is drafted.
#include <frt/capsule.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "model_rig.hpp"

using frt::Buffer;
using frt::test::LmDriver;
using frt::test::ModelRig;

namespace {

using Entry = LmDriver::Entry;
using Tokens = std::vector<int32_t>;

struct Checkpoint {
  std::string name;
  int32_t vocabulary;
};
// The last one has heads of the models' sizes, which have kernels of their own.
const Checkpoint kCheckpoints[] = {
    {"synthetic:qwen3.6-tiny", 512},
    {"synthetic:qwen3.6-tiny-moe", 512},
    {"synthetic:qwen3.6-tiny?format=fp8", 512},
    {"synthetic:qwen3.6-tiny-moe?format=nvfp4", 512},
    {"synthetic:qwen3.6-tiny?key_dim=128&value_dim=128&head_dim=256&rotary_dim=64", 512}};
const std::string kOptions =
    "max_context = 192\nslots = 8\nmax_batch = 4\nprefill_chunk = 16\npage_rows = 0\n"
    "max_drafts = 3";

struct World {
  explicit World(const std::string& checkpoint, const std::string& options = kOptions)
      : rig(checkpoint, options), driver(rig) {
    info.struct_size = sizeof(info);
    frt::check(frt::core::state_table()->state_info(driver.info.state, &info), "state_info");
    frt_error error{};
    frt::check(rig.extension<frt_capsule_v1>(FRT_EXT_CAPSULE)->layout(rig.model, &layout, &error),
               error);
    arena = Buffer::retain(rig.context, info.buffer);
  }

  // Every byte that a boundary after `boundary` tokens has.
  std::vector<std::byte> state(uint32_t slot, uint64_t boundary) const {
    const auto all = arena.download<std::byte>(info.slot_stride, driver.stream,
                                               uint64_t{slot} * info.slot_stride);
    std::vector<std::byte> kept(all.begin(),
                                all.begin() + static_cast<std::ptrdiff_t>(info.fixed_bytes));
    for (uint32_t i = 0; i < layout->region_count; ++i) {
      const frt_region& region = layout->regions[i];
      if (region.kind != FRT_REGION_ROWS) continue;
      uint64_t offset = 0;
      frt_error error{};
      frt::check(
          frt::core::state_table()->state_region(driver.info.state, region.name, &offset, &error),
          error);
      const auto rows = std::max<int64_t>(0, static_cast<int64_t>(boundary) - region.row_lag);
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(offset);
      kept.insert(
          kept.end(), first,
          first + static_cast<std::ptrdiff_t>(static_cast<uint64_t>(rows) * region.row_bytes));
    }
    return kept;
  }

  void read(uint32_t slot, const Tokens& prompt) const {
    driver.clear(slot);
    const auto chunk = static_cast<std::ptrdiff_t>(driver.info.prefill_chunk);
    const auto size = static_cast<std::ptrdiff_t>(prompt.size());
    for (std::ptrdiff_t at = 0; at < size; at += chunk) {
      driver.prefill(slot, static_cast<int32_t>(at),
                     {prompt.begin() + at, prompt.begin() + std::min(size, at + chunk)});
    }
  }

  void sample(const std::vector<frt_sampling_params>& params) const {
    driver.write(driver.info.sampling, params);
  }

  ModelRig rig;
  LmDriver driver;
  frt_state_info info{};
  const frt_capsule_layout* layout = nullptr;
  Buffer arena;
};

Tokens random_tokens(std::mt19937& random, std::size_t count, int32_t vocabulary) {
  Tokens ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary));
  return ids;
}

// Greedy, sampled, or with all penalties.
frt_sampling_params sampling_of(uint32_t kind, uint64_t seed) {
  frt_sampling_params params{};
  params.top_p = params.repetition_penalty = 1;
  params.seed = seed;
  if (kind > 0) {
    params.temperature = 0.9f;
    params.top_k = 40;
    params.top_p = 0.95f;
  }
  if (kind > 1) {
    params.repetition_penalty = 1.3f;
    params.presence_penalty = 0.4f;
    params.frequency_penalty = 0.6f;
  }
  return params;
}

// Tokens of `steps` decode steps of each entry, alone, from what its slot holds; and how often a
// position repeats a token of its request, so that penalties are known to have had work.
struct Plain {
  Tokens tokens;
  std::vector<float> log_probabilities;
  std::vector<std::vector<float>> logits;
};
Plain decode(const World& world, int32_t slot, int32_t position, int32_t steps,
             const frt_sampling_params& params) {
  Plain plain;
  world.sample({params});
  for (int32_t i = 0; i < steps; ++i) {
    plain.tokens.push_back(world.driver.step({{slot, position + i, -1}})[0]);
    plain.log_probabilities.push_back(
        world.driver.read<float>(world.driver.info.log_probabilities, 1)[0]);
    plain.logits.push_back(world.driver.logits());
  }
  return plain;
}

}  // namespace

TEST_CASE("a verify step of several rows is its decode steps, bit for bit") {
  for (const Checkpoint& checkpoint : kCheckpoints) {
    CAPTURE(checkpoint.name);
    const World world(checkpoint.name);
    std::mt19937 random(7);
    for (const uint32_t kind : {0u, 1u, 2u}) {
      CAPTURE(kind);
      // Boundaries around multiples of the chunk.
      for (const int32_t length : {5, 15, 16, 17, 31, 33, 46, 48}) {
        CAPTURE(length);
        const Tokens prompt =
            random_tokens(random, static_cast<std::size_t>(length), checkpoint.vocabulary);
        const frt_sampling_params params = sampling_of(kind, random());
        world.sample({params});
        world.read(0, prompt);
        const Plain plain = decode(world, 0, length, 4, params);
        for (int32_t right = 0; right <= 3; ++right) {
          CAPTURE(right);
          world.sample({params});
          world.read(1, prompt);
          // `right` drafts as decoding goes on, then others.
          Tokens drafts(plain.tokens.begin(), plain.tokens.begin() + 3);
          for (std::size_t i = static_cast<std::size_t>(right); i < 3; ++i) {
            drafts[i] = (drafts[i] + 1) % checkpoint.vocabulary;
          }
          const Tokens text = world.driver.verify({{1, length, -1}}, {drafts})[0];
          REQUIRE(text == Tokens(plain.tokens.begin(), plain.tokens.begin() + right + 1));
          const auto count = static_cast<std::size_t>(right) + 1;
          const auto probabilities = world.driver.read<float>(world.driver.info.log_probabilities,
                                                              static_cast<uint64_t>(count));
          const std::vector<float> logits = world.driver.logits(count);
          for (std::size_t i = 0; i < count; ++i) {
            CHECK(probabilities[i] == plain.log_probabilities[i]);
            const auto row =
                logits.begin() + static_cast<std::ptrdiff_t>(i * world.driver.info.vocabulary);
            CHECK(std::equal(plain.logits[i].begin(), plain.logits[i].end(), row));
          }
          // The slot: as after so many decode steps from the same prompt.
          world.sample({params});
          world.read(2, prompt);
          decode(world, 2, length, right + 1, params);
          const auto boundary = static_cast<uint64_t>(length + right + 1);
          CHECK(world.state(1, boundary) == world.state(2, boundary));
        }
      }
    }
  }
}

TEST_CASE("entries of one verify step accept what each alone would") {
  for (const Checkpoint& checkpoint : kCheckpoints) {
    CAPTURE(checkpoint.name);
    const World world(checkpoint.name);
    std::mt19937 random(11);
    for (int32_t round = 0; round < 6; ++round) {
      CAPTURE(round);
      const std::size_t batch = 2 + static_cast<std::size_t>(round) % 3;
      std::vector<frt_sampling_params> params;
      std::vector<Entry> entries;
      std::vector<Tokens> drafts, expected;
      std::vector<Tokens> prompts;
      std::vector<uint64_t> boundaries;
      for (std::size_t i = 0; i < batch; ++i) {
        const auto length = static_cast<int32_t>(3 + random() % 60);
        prompts.push_back(
            random_tokens(random, static_cast<std::size_t>(length), checkpoint.vocabulary));
        params.push_back(sampling_of(random() % 3, random()));
        world.sample({params.back()});
        const auto alone = static_cast<uint32_t>(4 + i);
        world.read(alone, prompts.back());
        const std::size_t drafted = i == 0 ? 3 : random() % 4;
        const std::size_t right = drafted == 0 ? 0 : random() % (drafted + 1);
        const Plain plain = decode(world, static_cast<int32_t>(alone), length,
                                   static_cast<int32_t>(right) + 1, params.back());
        Tokens draft(plain.tokens.begin(),
                     plain.tokens.begin() + static_cast<std::ptrdiff_t>(right));
        if (right < drafted) draft.push_back((plain.tokens[right] + 1) % checkpoint.vocabulary);
        while (draft.size() < drafted) draft.push_back(0);
        drafts.push_back(draft);
        expected.push_back(plain.tokens);
        entries.push_back({static_cast<int32_t>(i), length, -1});
        boundaries.push_back(static_cast<uint64_t>(length) + right + 1);
      }
      for (std::size_t i = 0; i < batch; ++i) {
        world.sample({params[i]});
        world.read(static_cast<uint32_t>(i), prompts[i]);
      }
      world.sample(params);
      CHECK(world.driver.verify(entries, drafts) == expected);
      for (std::size_t i = 0; i < batch; ++i) {
        const auto slot = static_cast<uint32_t>(i);
        CHECK(world.state(slot, boundaries[i]) == world.state(slot + 4, boundaries[i]));
      }
    }
  }
}

TEST_CASE("rounds of the draft head write what decoding writes") {
  for (const Checkpoint& checkpoint :
       {kCheckpoints[0], Checkpoint{std::string(FRT_FIXTURES_DIR) + "/demo", 0}}) {
    CAPTURE(checkpoint.name);
    const World world(checkpoint.name, kOptions);
    std::mt19937 random(13);
    for (const uint32_t kind : {0u, 2u}) {
      const Tokens prompt =
          random_tokens(random, 21, static_cast<int32_t>(world.driver.info.vocabulary));
      const frt_sampling_params params = sampling_of(kind, 5);
      world.sample({params});
      world.read(0, prompt);
      const Plain plain = decode(world, 0, 21, 48, params);
      world.sample({params});
      world.read(1, prompt);
      Tokens text;
      for (uint32_t drafts = 1; text.size() < 44; drafts = drafts % 3 + 1) {
        const auto position = static_cast<int32_t>(21 + text.size());
        const auto proposed = world.driver.draft({{1, position, -1}}, drafts);
        const Tokens next = world.driver.verify({{1, position, -1}}, proposed)[0];
        text.insert(text.end(), next.begin(), next.end());
        // A step without drafts in between goes on from the same state.
        if (text.size() % 5 == 0) {
          text.push_back(world.driver.step({{1, static_cast<int32_t>(21 + text.size()), -1}})[0]);
        }
      }
      CHECK(text == Tokens(plain.tokens.begin(),
                           plain.tokens.begin() + static_cast<std::ptrdiff_t>(text.size())));
      const uint64_t boundary = 21 + text.size();
      world.sample({params});
      world.read(2, prompt);
      decode(world, 2, 21, static_cast<int32_t>(text.size()), params);
      CHECK(world.state(1, boundary) == world.state(2, boundary));
    }
  }
}

TEST_CASE("drafts proposed together are those proposed one at a time") {
  const World world(kCheckpoints[1].name);
  std::mt19937 random(17);
  const std::vector<int32_t> lengths = {9, 30};
  std::vector<Entry> entries;
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t length = lengths[static_cast<std::size_t>(i)];
    const Tokens prompt = random_tokens(random, static_cast<std::size_t>(length), 512);
    world.read(static_cast<uint32_t>(i), prompt);
    world.read(static_cast<uint32_t>(i) + 2, prompt);
    entries.push_back({i, length, -1});
  }
  const std::vector<Tokens> together = world.driver.draft(entries, 3);
  std::vector<Tokens> alone(2);
  for (std::size_t i = 0; i < 2; ++i) {
    Entry entry = entries[i];
    entry.slot += 2;
    for (int32_t step = 0; step < 3; ++step) {
      alone[i].push_back(world.driver.draft({entry}, 1)[0][0]);
      ++entry.position;
      entry.token = alone[i].back();
    }
  }
  CHECK(together == alone);
}

TEST_CASE("a draft that is a stop is not accepted, and an entry of length 0 takes no part") {
  const World world(kCheckpoints[0].name);
  std::mt19937 random(19);
  const Tokens prompt = random_tokens(random, 12, 512);
  world.read(0, prompt);
  const frt_sampling_params greedy = sampling_of(0, 0);
  const Plain plain = decode(world, 0, 12, 4, greedy);
  world.read(1, prompt);
  world.read(3, prompt);
  const auto idle = world.state(3, 12);
  const Tokens drafts(plain.tokens.begin(), plain.tokens.begin() + 3);
  const auto text = world.driver.verify({{1, 12, -1}, {3, 12, -1, 0}}, {drafts, drafts},
                                        {{-1, plain.tokens[1]}, {}});
  const auto first = std::find(plain.tokens.begin(), plain.tokens.end(), plain.tokens[1]);
  CHECK(text[0] == Tokens(plain.tokens.begin(), first + 1));
  CHECK(world.state(3, 12) == idle);
}

TEST_CASE("drafts come from the first tokens of the vocabulary, and are the best of these") {
  for (const std::string name :
       {"synthetic:qwen3.6-tiny", "synthetic:qwen3.6-tiny-moe?format=nvfp4"}) {
    CAPTURE(name);
    World whole(name), trimmed(name, kOptions + "\ndraft_vocabulary = 128");
    std::mt19937 random(29);
    int32_t others = 0;
    for (uint32_t round = 0; round < 8; ++round) {
      const Tokens prompt = random_tokens(random, 12, 512);
      Tokens all, first;
      for (World* world : {&whole, &trimmed}) {
        world->read(0, prompt);
        (world == &whole ? all : first) = world->driver.step({{0, 12, -1}}, true);
        const auto logits = world->driver.read<float>(world->driver.info.logits, 512);
        const auto end = logits.begin() + (world == &whole ? 512 : 128);
        const auto best = std::max_element(logits.begin(), end) - logits.begin();
        CHECK((world == &whole ? all : first) == Tokens{static_cast<int32_t>(best)});
      }
      CHECK(first[0] < 128);
      if (all[0] != first[0]) ++others;
    }
    CHECK(others > 0);  // or nothing was trimmed
  }
  for (const std::string wrong : {"draft_vocabulary = 100", "draft_vocabulary = 640",
                                  "draft_vocabulary = 128\nspeculation = \"off\""}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(ModelRig(kCheckpoints[0].name, kOptions + "\n" + wrong), frt::Error);
  }
}

TEST_CASE("keys of drafts and checks have limits") {
  const World world(kCheckpoints[0].name);
  const auto* role = world.rig.extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM);
  frt_shape_key key = 0;
  uint32_t entries = 0;
  CHECK(world.driver.info.max_drafts == 3);
  CHECK(world.driver.info.max_rows == 16);
  CHECK(role->verify_key(world.rig.model, 3, 4, &key, &entries) == FRT_OK);
  CHECK(entries == 4);
  CHECK(role->verify_key(world.rig.model, 1, 5, &key, &entries) == FRT_ERR_OUT_OF_RANGE);
  CHECK(role->verify_key(world.rig.model, 1, 1, &key, &entries) == FRT_ERR_OUT_OF_RANGE);
  CHECK(role->verify_key(world.rig.model, 5, 2, &key, &entries) == FRT_ERR_OUT_OF_RANGE);
  CHECK(role->draft_key(world.rig.model, 1, 0, &key, &entries) == FRT_ERR_OUT_OF_RANGE);
  CHECK(role->draft_key(world.rig.model, 1, UINT32_MAX, &key, &entries) == FRT_ERR_OUT_OF_RANGE);
  CHECK(role->draft_key(world.rig.model, 1, 3, &key, &entries) == FRT_OK);
  const ModelRig wide("synthetic:qwen3.6-tiny", "slots = 8\nmax_context = 64\nmax_drafts = 7");
  const auto* other = wide.extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM);
  CHECK(other->verify_key(wide.model, 2, 8, &key, &entries) == FRT_OK);
  CHECK(other->verify_key(wide.model, 8, 2, &key, &entries) == FRT_OK);
  CHECK(other->verify_key(wide.model, 8, 3, &key, &entries) == FRT_ERR_OUT_OF_RANGE);
}
