// SPDX-License-Identifier: Apache-2.0
#include "policy.hpp"

#include "tables.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace acme {
namespace {

constexpr frt_shape_key kInfer = 1;  // there is one variant
constexpr uint64_t kMaxSide = 1024, kMaxHorizon = 1024, kMaxGoals = 64;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : std::string(text) + ' ') {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) word += c;
    if (!letter && !word.empty()) words.push_back(std::exchange(word, {}));
  }
  return words;
}

// FNV-1a, in 64 bits.
uint64_t mix(uint64_t digest, const void* data, uint64_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (uint64_t i = 0; i < bytes; ++i) digest = (digest ^ byte[i]) * 0x100000001B3u;
  return digest;
}

frt_weight matrix(const frt::Buffer& values, uint64_t rows, uint64_t cols) {
  frt_weight weight{};
  weight.format = frt::kWeightF32;
  weight.rows = static_cast<int32_t>(rows);
  weight.cols = static_cast<int32_t>(cols);
  weight.data = values.pointer();
  return weight;
}

}  // namespace

Policy::Policy(const frt::Context& context, const frt_state_v1* states,
               const frt_model_params& params)
    : context_(context) {
  const frt::Safetensors file(params.checkpoint);
  goals_ = words_of(file.metadata("goals"));
  const auto& look = file.tensor("look").shape;
  const auto& steps = file.tensor("to_goal").shape;
  const bool sane = look.size() == 4 && look[1] > 0 && look[1] <= kMaxSide && steps.size() == 3 &&
                    steps[0] > 0 && steps[0] <= kMaxHorizon && !goals_.empty() &&
                    goals_.size() <= kMaxGoals;
  if (!sane) {
    throw frt::Error(FRT_ERR_MISMATCH,
                     std::string(params.checkpoint) +
                         ": expected 'look' [goals * 2, side, side, 3], 'to_goal' [horizon, 2, 2] "
                         "and the metadata 'goals', words with spaces between them; "
                         "make_weights.py writes such a file");
  }
  side_ = static_cast<uint32_t>(look[1]);
  horizon_ = static_cast<uint32_t>(steps[0]);
  const frt::Stream stream = context_.create_stream("load");
  const uint64_t seen = goals_.size() * kAxes;
  look_ = load(file, "look", {seen, side_, side_, 3}, stream);
  bias_ = load(file, "bias", {seen}, stream);
  correction_ = load(file, "correction", {seen, kAxes}, stream);
  to_goal_ = load(file, "to_goal", {horizon_, kAxes, kAxes}, stream);
  to_state_ = load(file, "to_state", {horizon_, kAxes, kAxes}, stream);
  for (const std::string& goal : goals_) digest_ = mix(digest_, goal.c_str(), goal.size() + 1);
  make_ports(states, params.name);
  length_.upload(std::vector<int32_t>{1}, stream);
  seen_ = context_.alloc(FRT_SPACE_DEVICE, seen * sizeof(float), "seen");
  goal_ = context_.alloc(FRT_SPACE_DEVICE, kAxes * sizeof(float), "goal");
  staging_ = context_.alloc(FRT_SPACE_HOST_PINNED, image_.bytes() + state_.bytes() + token_.bytes(),
                            "staging");
  uploaded_ = context_.create_event();
  frt::KernelSet()
      .add(dense_, FRT_OP_DENSE)
      .add(embed_, FRT_OP_EMBED)
      .resolve(context_, frt::KernelTypes(FRT_DTYPE_F32), frt::kWeightF32);
  capture();
  describe();
}

frt::Buffer Policy::load(const frt::Safetensors& file, const char* name,
                         const std::vector<uint64_t>& shape, const frt::Stream& stream) {
  const std::vector<float> values = file.read_f32(name, shape);
  frt::Buffer buffer = context_.alloc(FRT_SPACE_DEVICE, values.size() * sizeof(float), name);
  buffer.upload(values, stream);
  weight_bytes_ += buffer.bytes();
  digest_ = mix(digest_, values.data(), buffer.bytes());
  return buffer;
}

// Regions of the arena, which begins zeroed, and the buffers that are views of them.
void Policy::make_ports(const frt_state_v1* states, const std::string& name) {
  const struct {
    frt::Buffer& buffer;
    const char* name;
    frt_dtype dtype;
    uint64_t bytes;
  } ports[] = {
      {image_, "images", FRT_DTYPE_F32, look_.bytes() / (goals_.size() * kAxes)},
      {state_, "proprioception", FRT_DTYPE_F32, kAxes * sizeof(float)},
      {token_, "prompt_tokens", FRT_DTYPE_I32, sizeof(int32_t)},
      {length_, "prompt_length", FRT_DTYPE_I32, sizeof(int32_t)},
      {actions_, "actions", FRT_DTYPE_F32, horizon_ * kAxes * sizeof(float)},
  };
  for (const auto& port : ports) layout_.add_fixed(port.name, port.dtype, port.bytes);
  arena_ = frt::State(states, context_, layout_.table(), 1, name + ".state");
  const frt::Buffer all = frt::Buffer::retain(context_, arena_.info().buffer);
  for (const auto& port : ports) {
    port.buffer = all.view(arena_.region(port.name), port.bytes, port.name);
  }
}

// The recipe: what one inference computes, recorded once. Eagerly it runs at each replay, so what
// it needs it holds by value, or is a member.
void Policy::capture() {
  const uint64_t pixels = uint64_t{3} * side_ * side_;
  const uint64_t seen = goals_.size() * kAxes, values = uint64_t{horizon_} * kAxes;
  const auto product = [this](const frt::Recorder& to, const frt::Buffer& x, const frt_weight& w,
                              const frt::Buffer& y, bool accumulate, const float* bias) {
    frt_dense_args dense{};
    dense.x_dtype = dense.y_dtype = FRT_DTYPE_F32;
    dense.rows = 1;
    dense.x = x.pointer();
    dense.x_stride = w.cols;
    dense.weight = w;
    dense.bias = bias;
    dense.accumulate = accumulate ? 1 : 0;
    dense.y = y.pointer();
    dense.y_stride = w.rows;
    dense_(to, dense);
  };
  infer_ = context_.create_graph("infer", 1);
  infer_.capture(kInfer, [=, this](const frt::Recorder& to) {
    product(to, image_, matrix(look_, seen, pixels), seen_, false, bias_.pointer<float>());
    product(to, state_, matrix(correction_, seen, kAxes), seen_, true, nullptr);

    frt_embed_args choose{};
    choose.y_dtype = FRT_DTYPE_F32;
    choose.rows = 1;
    choose.ids = token_.pointer<int32_t>();
    choose.table = matrix(seen_, goals_.size(), kAxes);
    choose.y = goal_.pointer();
    choose.y_stride = kAxes;
    embed_(to, choose);

    product(to, goal_, matrix(to_goal_, values, kAxes), actions_, false, nullptr);
    product(to, state_, matrix(to_state_, values, kAxes), actions_, true, nullptr);
  });
}

void Policy::describe() {
  info_.struct_size = sizeof(info_);
  info_.architecture = "linear reaching policy";
  info_.formats = "f32 100 %";
  info_.parameters = weight_bytes_ / sizeof(float);
  info_.weight_bytes = weight_bytes_;
  info_.scratch_bytes = seen_.bytes() + goal_.bytes();
  info_.state_bytes = arena_.info().slot_stride;

  // Buffers that the policy has not stay NULL: it needs no noise and no mask of views.
  role_.struct_size = sizeof(role_);
  role_.views = 1;
  role_.image_height = role_.image_width = side_;
  role_.image_dtype = FRT_DTYPE_F32;
  role_.state_dim = role_.action_dim = kAxes;
  role_.horizon = horizon_;
  role_.max_prompt = role_.default_steps = role_.max_steps = 1;
  role_.max_samples = role_.guidance_branches = 1;
  role_.state = arena_.handle();
  role_.infer = infer_;
  role_.images = image_;
  role_.proprioception = state_;
  role_.prompt_tokens = token_;
  role_.prompt_length = length_;
  role_.actions = actions_;

  const std::string side = std::to_string(side_);
  names_ = R"([{"name": "observation/image", "kind": "image", "shape": [)" + side + ", " + side +
           R"(, 3]}, {"name": "observation/state", "kind": "state", "shape": [2]}])";
  metadata_ = R"({"policy": "acme.reach", "horizon": )" + std::to_string(horizon_) + "}";
  observation_info_.struct_size = sizeof(observation_info_);
  observation_info_.action_dim = observation_info_.state_dim = kAxes;
  observation_info_.names = names_.c_str();
  observation_info_.metadata = metadata_.c_str();

  const int64_t pixels = side_;
  ports_ = {frt::make_port("images", "RGB, -1 to 1", image_, FRT_PORT_INPUT, FRT_DTYPE_F32,
                           {1, pixels, pixels, 3}),
            frt::make_port("proprioception", "x and y, 0 to 1", state_, FRT_PORT_INPUT,
                           FRT_DTYPE_F32, {kAxes}),
            frt::make_port("prompt_tokens", "the row of goals", token_, FRT_PORT_INPUT,
                           FRT_DTYPE_I32, {1, 1}),
            frt::make_port("actions", "steps in x and y", actions_, FRT_PORT_OUTPUT, FRT_DTYPE_F32,
                           {1, horizon_, kAxes})};
  graphs_ = {{"infer", "one chunk of actions; key 1", infer_}};

  char digest[17];
  std::snprintf(digest, sizeof(digest), "%016llx", static_cast<unsigned long long>(digest_));
  digest_text_ = digest;
  canonical_ = layout_.canonical_text();
  fingerprint_ = {
      {"state", "1"}, {"weights", digest_text_.c_str()}, {"layout", canonical_.c_str()}};
}

void Policy::upload(const Inputs& inputs, frt_stream stream) {
  uploaded_.sync();  // the staging memory is free again
  uint64_t at = 0;
  const auto put = [&](const auto& values, const frt::Buffer& target) {
    if (!values.empty()) {
      std::memcpy(staging_.pointer<std::byte>() + at, values.data(), target.bytes());
      context_.checked(
          context_.table().buffer_copy(target, 0, staging_, at, target.bytes(), stream), "upload");
    }
    at += target.bytes();
  };
  put(inputs.image, image_);
  put(inputs.state, state_);
  put(inputs.goal, token_);
  uploaded_.record(stream);
}

int32_t Policy::goal_of(std::string_view instruction) const {
  int32_t goal = -1;
  for (const std::string& word : words_of(instruction)) {
    const auto found = std::find(goals_.begin(), goals_.end(), word);
    if (found == goals_.end()) continue;
    const auto row = static_cast<int32_t>(found - goals_.begin());
    if (goal >= 0 && goal != row) {
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "the instruction names both '" +
                                                     goals_[static_cast<std::size_t>(goal)] +
                                                     "' and '" + word + "'; name one goal");
    }
    goal = row;
  }
  if (goal >= 0) return goal;
  std::string all;
  for (const std::string& word : goals_) all += (all.empty() ? "" : ", ") + word;
  throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "the instruction names no goal; name one of " + all);
}

constexpr frt_capsule_v1 kCapsule = frt::capsule_table<Policy>();

const void* Policy::extension(std::string_view id) const noexcept {
  if (id == FRT_EXT_ROLE_POLICY) return &kRolePolicy;
  if (id == FRT_EXT_CAPSULE) return &kCapsule;
  return id == FRT_EXT_OBSERVATION ? &kObservation : nullptr;
}

}  // namespace acme
