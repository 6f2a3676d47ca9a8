// SPDX-License-Identifier: Apache-2.0
// Steps of a model that has a role and nothing inside: what is submitted, and what is refused.
#include "lm/step_runner.hpp"

#include "capsule_rig.hpp"

namespace frt::host {
namespace {

using frt::test::caught;

constexpr uint32_t kChunk = 8, kBatch = 2, kContext = 64, kVocabulary = 100;

struct Inside {
  frt_lm_info info{};
};

frt_status role_info(frt_model model, frt_lm_info* info) {
  *info = reinterpret_cast<const Inside*>(model)->info;
  return FRT_OK;
}
// More forgiving than a model should be.
frt_status prefill_key(frt_model, uint32_t, frt_shape_key* key) {
  *key = 0;
  return FRT_OK;
}
frt_status decode_key(frt_model, uint32_t batch, frt_shape_key* key, uint32_t* entries) {
  *key = 0;
  *entries = batch;
  return FRT_OK;
}
constexpr frt_role_lm_v1 kRole = {
    sizeof(frt_role_lm_v1), 0, role_info, prefill_key, decode_key, decode_key};

const void* extension(frt_model, const char* id) {
  return std::string(id) == FRT_EXT_ROLE_LM ? &kRole : nullptr;
}

struct World {
  frt::test::DeviceRig rig;
  frt_region region = {"rows", FRT_REGION_ROWS, FRT_DTYPE_U8, 4, kContext, 0};
  State state;
  std::vector<Buffer> buffers;
  Graph graph;
  Inside inside;
  frt_model_v1 table{};

  explicit World(uint32_t block_rows) {
    const frt_capsule_layout layout{sizeof(layout), 1, &region, block_rows, 0};
    state = State(core::state_table(), rig.context, layout, 2, "arena");
    const auto buffer = [&](const char* name) -> frt_buffer {
      buffers.push_back(rig.context.alloc(FRT_SPACE_DEVICE, 1024, name));
      return buffers.back();
    };
    frt_lm_info& info = inside.info;
    info.struct_size = sizeof(info);
    info.vocabulary = kVocabulary;
    info.max_context = kContext;
    info.slots = 2;
    info.prefill_chunk = kChunk;
    info.max_batch = kBatch;
    info.state = state.handle();
    info.tokens = buffer("tokens");
    info.slot_ids = buffer("slots");
    info.positions = buffer("positions");
    info.lengths = buffer("lengths");
    info.starts = buffer("starts");
    info.sampling = buffer("sampling");
    info.next_tokens = buffer("next");
    info.log_probabilities = buffer("probabilities");
    graph = rig.context.create_graph("step", 1);
    graph.capture(0, [&](const Recorder& recorder) { recorder.fill(info.next_tokens, 0, 4, 7); });
    info.prefill = info.decode = graph;
    table.struct_size = sizeof(table);
    table.extension = extension;
  }
  LmModel model() {
    return LmModel(rig.context, core::state_table(), core::capsules_table(), &table,
                   reinterpret_cast<frt_model>(&inside), "m");
  }
};

}  // namespace

TEST_CASE(
    "a step that does not fit the model or its slot is refused before anything is submitted") {
  for (const uint32_t block_rows : {0u, 16u}) {
    World world(block_rows);
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

}  // namespace frt::host
