// SPDX-License-Identifier: Apache-2.0
#include "policy_run.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "check.hpp"
#include "robot/random_inputs.hpp"

namespace frt::conformance {
namespace {

// Without words: of a policy with a vocabulary, and of one whose ids stand for its tasks.
const std::array<Instruction, 2> kWithoutWords = {Instruction{"", {2, 3, 4}}, Instruction{"", {0}}};

}  // namespace

void needs_policy(const Made& made) {
  if (!made.has(FRT_EXT_ROLE_POLICY)) throw Skip{"the model has no " FRT_EXT_ROLE_POLICY};
}

Instruction instruction_of(const host::PolicyModel& policy, const Subject& subject) {
  const Stream stream = policy.context().create_stream("words");
  frt_error error{};
  const auto written = [&](const Instruction& instruction) {
    const Observation observation(policy, 1, instruction);
    const frt_observation given = observation.table();
    frt_observed observed{};
    observed.struct_size = sizeof(observed);
    error = {};
    const frt_status status = contain(policy.sender(), "write", [&] {
      return policy.observation().write(policy.handle(), &given, stream.handle(), &observed,
                                        &error);
    });
    stream.sync();
    return status;
  };
  const Instruction words = {subject.prompt.empty() ? "go left" : subject.prompt, {}};
  const frt_status status = written(words);
  if (!subject.prompt.empty()) {
    check(status, error, policy.sender() + ": `write` with the prompt of --prompt");
    return words;
  }
  // Without a tokenizer, or with other words. What else it refuses is for the case to tell.
  const bool other_words = status == FRT_ERR_INVALID_ARGUMENT || status == FRT_ERR_NOT_FOUND;
  if (status != FRT_ERR_BAD_STATE && !other_words) return words;
  const std::string refusal = error.message;
  for (const Instruction& ids : kWithoutWords) {
    if (written(ids) == FRT_OK) return ids;
  }
  throw Skip{other_words ? "the policy takes neither the words \"" + words.words + "\" (" +
                               refusal + ") nor ids (" + error.message +
                               "); give it an instruction that it knows with --prompt"
                         : "the policy has no tokenizer and reads no ids in its place: " +
                               std::string(error.message)};
}

Observation::Observation(const host::PolicyModel& policy, uint64_t seed, Instruction instruction)
    : instruction_(std::move(instruction)), names_(policy.names()) {
  std::mt19937_64 random(seed);
  const frt_policy_info& info = policy.info();
  for (const host::ObservedName& name : names_) {
    frt_array array{};
    array.name = name.name.c_str();
    array.dtype = name.image ? FRT_DTYPE_U8 : FRT_DTYPE_F32;
    array.rank = static_cast<uint32_t>(name.shape.size());
    if (array.rank > FRT_ARRAY_MAX_RANK) {
      throw Error(FRT_ERR_MISMATCH,
                  "array '" + name.name + "' of frt_observation_info::names has " +
                      std::to_string(array.rank) + " extents; an frt_array has at most " +
                      std::to_string(FRT_ARRAY_MAX_RANK));
    }
    uint64_t count = 1;
    for (uint32_t i = 0; i < array.rank; ++i) {
      int64_t extent = name.shape[i];
      if (extent < 0 && name.image) extent = i == 0 ? info.image_height : info.image_width;
      array.shape[i] = extent < 0 ? 1 : extent;
      count *= static_cast<uint64_t>(array.shape[i]);
    }
    std::vector<std::byte>& bytes = bytes_.emplace_back(count * (name.image ? 1 : sizeof(float)));
    for (uint64_t i = 0; i < count; ++i) {
      if (name.image) {
        bytes[i] = static_cast<std::byte>(random());
      } else {
        const float value = static_cast<float>(random() % 1000) / 1000;
        std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
      }
    }
    arrays_.push_back(array);
  }
  for (std::size_t i = 0; i < arrays_.size(); ++i) arrays_[i].data = bytes_[i].data();
}

frt_observation Observation::table() const {
  frt_observation table{};
  table.struct_size = sizeof(table);
  table.array_count = static_cast<uint32_t>(arrays_.size());
  table.arrays = arrays_.data();
  if (!instruction_.words.empty()) {
    table.prompt = instruction_.words.c_str();
  } else if (!instruction_.ids.empty()) {
    table.prompt_tokens = instruction_.ids.data();
    table.prompt_token_count = static_cast<uint32_t>(instruction_.ids.size());
  }
  return table;
}

Chunk inferred(host::PolicyRunner& runner, uint64_t seed, uint64_t draw) {
  host::fill_normal(seed, draw, runner.noise());
  runner.submit();
  const auto robot = runner.wait();
  const auto network = runner.network_actions();
  return {{network.begin(), network.end()}, {robot.begin(), robot.end()}};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

PolicyRig::PolicyRig(const host::PolicyModel& policy)
    : policy_(policy), info_(policy.info()), stream_(policy.context().create_stream("check")) {}

std::vector<float> PolicyRig::normals(uint64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random_);
  return values;
}

void PolicyRig::write_inputs(uint64_t seed) {
  random_.seed(seed);
  const uint32_t branches = std::max(1u, info_.guidance_branches);
  const uint32_t prompt = std::min(4u, info_.max_prompt);
  host::write_random_inputs(policy_.context(), info_, std::vector<int32_t>(info_.views, 1),
                            std::vector<int32_t>(branches, static_cast<int32_t>(prompt)), random_,
                            stream_);
  shape_ = {};
  shape_.struct_size = sizeof(shape_);
  shape_.prompt = prompt;
  shape_.samples = 1;
  shape_.branches = branches;
}

std::vector<float> PolicyRig::infer() const {
  const Context& context = policy_.context();
  const frt_shape_key key = policy_.infer_key(shape_);
  context.checked(context.table().graph_replay(info_.infer, key, stream_.handle()), "graph_replay");
  return Buffer::retain(context, info_.actions).download<float>(policy_.action_values(), stream_);
}

std::vector<PolicyRig::Port> PolicyRig::inputs() const {
  std::vector<Port> all = {{"images", info_.images},
                           {"view_mask", info_.view_mask},
                           {"proprioception", info_.proprioception},
                           {"prompt_tokens", info_.prompt_tokens},
                           {"prompt_length", info_.prompt_length},
                           {"noise", info_.noise},
                           {"beta", info_.beta},
                           {"previous", info_.previous},
                           {"previous_weights", info_.previous_weights},
                           {"continuation", info_.continuation}};
  std::erase_if(all, [](const Port& port) { return !port.buffer; });
  return all;
}

std::vector<std::byte> PolicyRig::bytes_of(frt_buffer buffer) const {
  const Buffer held = Buffer::retain(policy_.context(), buffer);
  return held.download<std::byte>(held.bytes(), stream_);
}

}  // namespace frt::conformance
