// SPDX-License-Identifier: Apache-2.0
// The promises of frt/role/lm.h and frt/capsule.h, bit for bit: batches, pending tokens, idle
// entries, restored slots, drafting.
#include <frt/capsule.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "model_rig.hpp"

using frt::Buffer;
using frt::test::LmDriver;
using frt::test::ModelRig;

namespace {

using Entry = LmDriver::Entry;

const char* const kCheckpoints[] = {"synthetic:qwen3.6-tiny", "synthetic:qwen3.6-tiny-moe",
                                    "synthetic:qwen3.6-tiny?format=fp8",
                                    "synthetic:qwen3.6-tiny-moe?format=nvfp4"};
const std::string kOptions = "max_context = 128\nslots = 4\nprefill_chunk = 16\npage_rows = 0";
const std::string kInPages = "max_context = 200\nslots = 4\nprefill_chunk = 16\npage_rows = 64";

std::vector<int32_t> prompt(int32_t length, int32_t seed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((i * i * 31 + i * 7 + seed * 101) % 512);
  return ids;
}

// Feeds a prompt of any length in chunks; returns the sampled token.
int32_t feed(const LmDriver& driver, uint32_t slot, const std::vector<int32_t>& ids) {
  driver.clear(slot);
  int32_t next = 0;
  for (std::size_t at = 0; at < ids.size(); at += driver.info.prefill_chunk) {
    const std::size_t end = std::min<std::size_t>(ids.size(), at + driver.info.prefill_chunk);
    next = driver.prefill(slot, static_cast<int32_t>(at),
                          {ids.begin() + static_cast<std::ptrdiff_t>(at),
                           ids.begin() + static_cast<std::ptrdiff_t>(end)});
  }
  return next;
}

struct Arena {
  frt_state_info info{};
  const frt_capsule_layout* layout = nullptr;
  Buffer buffer;

  Arena(const ModelRig& rig, const LmDriver& driver) {
    info.struct_size = sizeof(info);
    frt::core::state_table()->state_info(driver.info.state, &info);
    frt_error error{};
    frt::check(rig.extension<frt_capsule_v1>(FRT_EXT_CAPSULE)->layout(rig.model, &layout, &error),
               error);
    buffer = Buffer::retain(rig.context, info.buffer);
  }
  std::vector<std::byte> slot(const LmDriver& driver, uint32_t number) const {
    return buffer.download<std::byte>(info.slot_stride, driver.stream, number * info.slot_stride);
  }
  // The token counts of a slot.
  std::vector<uint32_t> counts(const LmDriver& driver, uint32_t number) const {
    uint64_t offset = 0;
    frt_error error{};
    frt::check(frt::core::state_table()->state_region(driver.info.state, "counts", &offset, &error),
               error);
    return buffer.download<uint32_t>(driver.info.vocabulary, driver.stream,
                                     number * info.slot_stride + offset);
  }
  // What a capsule at `boundary` would restore, over a slot filled with rubbish.
  void restore(const LmDriver& driver, uint32_t from, uint32_t to, uint64_t boundary) const {
    driver.reserve(to, 0, boundary);
    std::vector<std::byte> source = slot(driver, from);
    std::vector<std::byte> target(info.slot_stride, std::byte{0x5A});
    std::memcpy(target.data(), source.data(), info.fixed_bytes);
    for (uint32_t i = 0; i < layout->region_count; ++i) {
      const frt_region& region = layout->regions[i];
      if (region.kind != FRT_REGION_ROWS) continue;
      uint64_t offset = 0;
      frt_error error{};
      frt::check(
          frt::core::state_table()->state_region(driver.info.state, region.name, &offset, &error),
          error);
      const auto rows = static_cast<uint64_t>(
          std::max<int64_t>(0, static_cast<int64_t>(boundary) - region.row_lag));
      std::memcpy(target.data() + offset, source.data() + offset, rows * region.row_bytes);
    }
    buffer.upload(target, driver.stream, to * info.slot_stride);
  }
};

}  // namespace

TEST_CASE("sequences decoded together get what each gets alone") {
  for (const char* checkpoint : kCheckpoints) {
    CAPTURE(checkpoint);
    const ModelRig rig(checkpoint, kOptions);
    const LmDriver driver(rig);
    std::vector<std::vector<float>> alone;
    std::vector<int32_t> tokens;
    const std::vector<int32_t> lengths = {5, 16, 33};
    for (const int32_t length : lengths) {
      const int32_t token = feed(driver, 3, prompt(length, length));
      tokens.push_back(driver.step({{3, length, token}})[0]);
      alone.push_back(driver.logits());
    }
    std::vector<Entry> entries;
    for (int32_t slot = 0; slot < 3; ++slot) {
      const int32_t length = lengths[static_cast<std::size_t>(slot)];
      const int32_t token = feed(driver, static_cast<uint32_t>(slot), prompt(length, length));
      entries.push_back({slot, length, token});
    }
    CHECK(driver.step(entries) == tokens);
    const std::vector<float> together = driver.logits(3);
    for (std::size_t i = 0; i < 3; ++i) {
      const auto at = together.begin() + static_cast<std::ptrdiff_t>(i * driver.info.vocabulary);
      CHECK(std::equal(alone[i].begin(), alone[i].end(), at));
    }
  }
}

TEST_CASE("a token of -1 is the one the slot sampled last") {
  const ModelRig rig(kCheckpoints[0], kOptions);
  const LmDriver driver(rig);
  int32_t token = feed(driver, 0, prompt(9, 1));
  std::vector<int32_t> told;
  for (int32_t i = 0; i < 6; ++i) told.push_back(token = driver.step({{0, 9 + i, token}})[0]);
  feed(driver, 1, prompt(9, 1));
  std::vector<int32_t> pending;
  for (int32_t i = 0; i < 6; ++i) pending.push_back(driver.step({{1, 9 + i, -1}})[0]);
  CHECK(pending == told);
}

TEST_CASE("an entry of length 0 leaves its slot as it is") {
  const ModelRig rig(kCheckpoints[1], kOptions);
  const LmDriver driver(rig);
  const Arena arena(rig, driver);
  feed(driver, 0, prompt(7, 1));
  feed(driver, 1, prompt(8, 2));
  const auto before = arena.slot(driver, 1);
  driver.step({{0, 7, -1}, {1, 8, -1, 0}});
  driver.step({{0, 8, -1}, {1, 8, -1, 0}}, true);
  CHECK(arena.slot(driver, 1) == before);
}

TEST_CASE("a restored slot continues bit for bit, drafts included") {
  for (const char* checkpoint : kCheckpoints) {
    CAPTURE(checkpoint);
    const ModelRig rig(checkpoint, kOptions);
    const LmDriver driver(rig);
    const Arena arena(rig, driver);
    feed(driver, 0, prompt(20, 3));
    driver.step({{0, 20, -1}});
    arena.restore(driver, 0, 2, 21);
    const auto drafts = [&](int32_t slot) {
      std::vector<int32_t> tokens = {driver.step({{slot, 21, -1}}, true)[0]};
      tokens.push_back(driver.step({{slot, 22, tokens[0]}}, true)[0]);
      return tokens;
    };
    CHECK(drafts(0) == drafts(2));
    for (int32_t i = 0; i < 4; ++i) {
      const auto original = driver.step({{0, 21 + i, -1}});
      const auto logits = driver.logits();
      CHECK(driver.step({{2, 21 + i, -1}}) == original);
      CHECK(driver.logits() == logits);
    }
  }
}

TEST_CASE("a prompt continued from a restored chunk edge equals the cold prefill") {
  const ModelRig rig(kCheckpoints[0], kOptions);
  const LmDriver driver(rig);
  const Arena arena(rig, driver);
  const auto ids = prompt(41, 5);
  feed(driver, 0, {ids.begin(), ids.begin() + 32});
  arena.restore(driver, 0, 1, 32);
  feed(driver, 0, ids);
  const auto cold = driver.logits();
  driver.prefill(1, 32, {ids.begin() + 32, ids.end()});
  CHECK(driver.logits() == cold);
  const auto next = driver.step({{0, 41, -1}}, true);
  CHECK(driver.step({{1, 41, -1}}, true) == next);
}

TEST_CASE("a new request counts what was generated before it as prompt") {
  const ModelRig rig(kCheckpoints[0], kOptions);
  const LmDriver driver(rig);
  const Arena arena(rig, driver);
  const auto generate = [&](int32_t slot, int32_t position, int32_t steps) {
    std::vector<int32_t> fed;
    for (int32_t i = 0; i < steps; ++i) {
      fed.push_back(driver.read<int32_t>(driver.info.next_tokens, 1)[0]);
      driver.step({{slot, position + i, fed.back()}});
    }
    return fed;
  };
  // Two requests in slot 0; the second one's prompt has two chunks.
  std::vector<int32_t> whole = prompt(13, 7);
  feed(driver, 0, whole);
  const std::vector<int32_t> generated = generate(0, 13, 3);
  whole.insert(whole.end(), generated.begin(), generated.end());
  const std::vector<int32_t> tail = prompt(20, 8);
  driver.prefill(0, 16, {tail.begin(), tail.begin() + 16}, true);
  driver.prefill(0, 32, {tail.begin() + 16, tail.end()});
  whole.insert(whole.end(), tail.begin(), tail.end());
  // All of it as one prompt in slot 1.
  feed(driver, 1, whole);
  CHECK(arena.counts(driver, 0) == arena.counts(driver, 1));
  // A copy of the slot in the middle of the request goes on with its counts.
  const std::vector<int32_t> more = generate(0, 36, 2);
  arena.restore(driver, 0, 2, 38);
  CHECK(arena.counts(driver, 2) == arena.counts(driver, 0));
  driver.step({{0, 38, 5}, {2, 38, 5}});
  CHECK(arena.counts(driver, 2) == arena.counts(driver, 0));
  CHECK((arena.counts(driver, 0)[static_cast<std::size_t>(more[0])] & 0x7FFFFFFFu) > 0);
  // In a batch each entry says for itself.
  driver.step({{0, 39, 6, 1, true}, {2, 39, 6}, {1, 36, 6, 0, true}});
  const auto begun = arena.counts(driver, 0), going_on = arena.counts(driver, 2);
  for (std::size_t id = 0; id < begun.size(); ++id) {
    CHECK((begun[id] & 0x7FFFFFFFu) == (id == 6 ? 1u : 0u));
    CHECK((begun[id] != 0) == (going_on[id] != 0));
  }
  CHECK((going_on[5] & 0x7FFFFFFFu) > 0);
}

TEST_CASE("drafting does not change what is decoded") {
  const ModelRig rig(kCheckpoints[1], kOptions);
  const LmDriver driver(rig);
  std::vector<std::vector<float>> plain;
  feed(driver, 0, prompt(10, 4));
  for (int32_t i = 0; i < 5; ++i) {
    driver.step({{0, 10 + i, -1}});
    plain.push_back(driver.logits());
  }
  feed(driver, 1, prompt(10, 4));
  for (int32_t i = 0; i < 5; ++i) {
    int32_t token = -1;
    for (int32_t k = 0; k < 3; ++k) token = driver.step({{1, 10 + i + k, token}}, true)[0];
    driver.step({{1, 10 + i, -1}});
    CHECK(driver.logits() == plain[static_cast<std::size_t>(i)]);
  }
}

TEST_CASE("an eager device gives what recorded graphs give, and neither captures once ready") {
  const ModelRig recorded(kCheckpoints[0], kOptions);
  const ModelRig eager(kCheckpoints[0], kOptions, "", 0, "capture = false");
  const LmDriver a(recorded), b(eager);
  feed(a, 0, prompt(19, 6));
  feed(b, 0, prompt(19, 6));
  CHECK(a.logits() == b.logits());
  CHECK(a.step({{0, 19, -1}}) == b.step({{0, 19, -1}}));
  CHECK(a.logits() == b.logits());
  CHECK(recorded.context.counters().captures_since_ready == 0);
  CHECK(eager.context.counters().captures_since_ready == 0);
}

TEST_CASE("rows in pages give what rows by slot give, drafts and full slots included") {
  for (const char* checkpoint : kCheckpoints) {
    CAPTURE(checkpoint);
    const ModelRig by_slot(checkpoint,
                           "max_context = 200\nslots = 4\nprefill_chunk = 16\n"
                           "page_rows = 0");
    const ModelRig in_pages(checkpoint, kInPages);
    const LmDriver a(by_slot), b(in_pages);
    // Pages are allocated in turn, and some of them a second time.
    for (const LmDriver* driver : {&a, &b}) {
      for (const int32_t length : {70, 150, 20}) feed(*driver, 1, prompt(length, 9));
    }
    const std::vector<int32_t> lengths = {61, 126, 198};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto slot = static_cast<uint32_t>(i);
      CHECK(feed(a, slot, prompt(lengths[i], 3)) == feed(b, slot, prompt(lengths[i], 3)));
      CHECK(a.logits() == b.logits());
    }
    for (int32_t step = 0; step < 2; ++step) {
      std::vector<Entry> entries;
      for (int32_t i = 0; i < 3; ++i) {
        entries.push_back({i, lengths[static_cast<std::size_t>(i)] + step, -1});
      }
      CHECK(a.step(entries) == b.step(entries));
      CHECK(a.logits(3) == b.logits(3));
      for (Entry& entry : entries) ++entry.position;
      CHECK(a.step(entries, true) == b.step(entries, true));
      CHECK(a.logits(3) == b.logits(3));
    }
  }
}

TEST_CASE("a model without a draft head has no draft keys") {
  const ModelRig rig("synthetic:qwen3.6-tiny", kOptions + "\nspeculation = \"off\"");
  const LmDriver driver(rig);
  CHECK(driver.info.has_draft == 0);
  frt_shape_key key = 0;
  uint32_t entries = 0;
  CHECK(
      rig.extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM)->draft_key(rig.model, 1, 1, &key, &entries) ==
      FRT_ERR_UNSUPPORTED);
  CHECK(
      rig.extension<frt_role_lm_v1>(FRT_EXT_ROLE_LM)->verify_key(rig.model, 1, 2, &key, &entries) ==
      FRT_ERR_UNSUPPORTED);
}
