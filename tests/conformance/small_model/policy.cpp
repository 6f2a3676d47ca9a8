// SPDX-License-Identifier: Apache-2.0
#include "policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <frt/observation.hpp>
#include <frt/plugin.hpp>
#include <limits>
#include <string_view>

#include "defect.hpp"
#include "model.hpp"

namespace small {
namespace {

using frt::Error;
using frt::guard;

constexpr uint32_t kHorizon = 4, kActions = 3, kState = 3, kPrompt = 8, kBranches = 2, kSteps = 2;
constexpr uint32_t kTrainedDelay = 1;  // rows, with FRT_CONTINUE_CLEAN
constexpr uint32_t kSide = 2, kPixels = kSide * kSide * 3, kChunk = kHorizon * kActions;
constexpr uint64_t kActionBytes = kChunk * sizeof(float) + 16;  // room behind the chunk

void require_finite(std::span<const float> values, const char* what) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(what) + " is NaN or infinite");
    }
  }
}

}  // namespace

Policy::Policy(const frt::Context& context, const frt_state_v1* states) : context_(context) {
  const struct {
    const char* name;
    uint64_t bytes;
    frt::Buffer& buffer;
  } parts[] = {{"images", kPixels, images_},
               {"view_mask", sizeof(int32_t), mask_},
               {"proprioception", kState * sizeof(float), values_},
               {"prompt_tokens", kBranches * kPrompt * sizeof(int32_t), prompt_},
               {"prompt_length", kBranches * sizeof(int32_t), lengths_},
               {"noise", kChunk * sizeof(float), noise_},
               {"beta", kSteps * sizeof(float), beta_},
               {"previous", kChunk * sizeof(float), previous_},
               {"previous_weights", kHorizon * sizeof(float), weights_},
               {"continuation", sizeof(frt_policy_continuation), continuation_},
               {"actions", kActionBytes, actions_}};
  const auto outside = [](std::string_view name) {
    return (has_defect("capsule_forgets_previous") && name == "previous") ||
           (has_defect("capsule_forgets_noise") && name == "noise");
  };
  for (const auto& one : parts) {
    if (!outside(one.name)) layout_.add_fixed(one.name, FRT_DTYPE_U8, one.bytes);
  }
  state_ = frt::State(states, context, layout_.table(), 2, "small.state");
  arena_ = frt::Buffer::retain(context, state_.info().buffer);
  for (const auto& one : parts) {
    if (!outside(one.name)) {
      one.buffer = arena_.view(state_.region(one.name), one.bytes, one.name);
      continue;
    }
    one.buffer = context.alloc(FRT_SPACE_DEVICE, one.bytes, one.name);
    one.buffer.upload(std::vector<std::byte>(one.bytes), context.create_stream("zeros"));
  }
  infer_ = context.create_graph("infer", kBranches);
  for (uint32_t branches = 1; branches <= kBranches; ++branches) capture(branches);

  role_.struct_size = sizeof(role_);
  role_.views = 1;
  role_.image_height = role_.image_width = kSide;
  role_.image_dtype = FRT_DTYPE_U8;
  role_.state_dim = kState;
  role_.horizon = kHorizon;
  role_.action_dim = kActions;
  role_.max_prompt = kPrompt;
  role_.default_steps = role_.max_steps = kSteps;
  role_.max_samples = 0;  // one
  role_.guidance_branches = kBranches;
  role_.has_continuation = 1;
  role_.state = state_.handle();
  role_.infer = infer_;
  role_.images = images_;
  role_.view_mask = mask_;
  role_.proprioception = values_;
  role_.prompt_tokens = prompt_;
  role_.prompt_length = lengths_;
  role_.noise = noise_;
  role_.beta = beta_;
  role_.previous = previous_;
  role_.previous_weights = weights_;
  role_.continuation = continuation_;
  role_.actions = actions_;
}

void Policy::capture(uint32_t branches) {
  infer_.capture(branches, [this, branches](const frt::Recorder& to) {
    float added = has_defect("policy_launch_works") ? ++launches_ : 0;
    if (has_defect("set_prompt_captured") && told_) added = 1;
    context_.call(to.backend_stream(), [=, this] { infer(branches, added); });
  });
}

float Policy::velocity(uint32_t branch, uint32_t row, uint32_t value, float at) const {
  float sum = values_.pointer<float>()[value % kState];
  for (uint32_t i = 0; i < kPixels && mask_.pointer<int32_t>()[0] != 0; ++i) {
    sum += static_cast<float>(images_.pointer<uint8_t>()[i]) / 1024;
  }
  const int32_t length = lengths_.pointer<int32_t>()[branch];
  for (int32_t i = 0; i < length && i < static_cast<int32_t>(kPrompt); ++i) {
    const int32_t id = prompt_.pointer<int32_t>()[branch * kPrompt + static_cast<uint32_t>(i)];
    sum += static_cast<float>(id * (i + 1)) / 64;
  }
  return std::sin(sum + static_cast<float>(row) + 0.25f * static_cast<float>(value)) - 0.5f * at;
}

// On the stream's thread.
void Policy::infer(uint32_t branches, float added) const {
  const auto& control = *continuation_.pointer<frt_policy_continuation>();
  const auto rows = has_defect("chunk_short") ? kHorizon - 1 : kHorizon;
  for (uint32_t i = 0; borrowed_ && borrowed_[i] != '\0'; ++i) {
    prompt_.pointer<int32_t>()[i] = static_cast<unsigned char>(borrowed_[i]);
  }
  if (remembers_) added += 1;
  for (uint32_t row = 0; row < rows; ++row) {
    const bool locked = static_cast<int32_t>(row) < control.locked;
    for (uint32_t value = 0; value < kActions; ++value) {
      const uint32_t i = row * kActions + value;
      const float before = previous_.pointer<float>()[i];
      float at = locked ? before : noise_.pointer<float>()[i] + added;
      for (uint32_t step = 0; step < kSteps && !locked; ++step) {
        float v = velocity(branches - 1, row, value, at);
        if (branches > 1) v += beta_.pointer<float>()[step] * (velocity(0, row, value, at) - v);
        const float weight = std::min(weights_.pointer<float>()[row], control.guidance_cap);
        at += (v + weight * (before - at)) / kSteps;
      }
      actions_.pointer<float>()[i] = at;
    }
  }
  if (has_defect("chunk_behind")) actions_.pointer<float>()[kChunk] = 1;
  if (has_defect("input_written")) noise_.pointer<float>()[0] = 0;
}

frt_status Policy::key_of(const frt_policy_shape& shape, frt_shape_key& key) {
  if (shape.views > 1 || shape.prompt > kPrompt) return FRT_ERR_OUT_OF_RANGE;
  if ((shape.steps != 0 && shape.steps != kSteps) || shape.samples > 1 ||
      shape.branches > kBranches) {
    return FRT_ERR_NO_VARIANT;
  }
  key = shape.branches == 0 ? kBranches : shape.branches;
  return FRT_OK;
}

template <class T>
void Policy::upload(const frt::Buffer& target, std::span<const T> values, frt_stream stream,
                    uint64_t first) const {
  context_.checked(context_.table().stream_sync(stream), "upload");
  std::copy(values.begin(), values.end(), target.pointer<T>() + first);
}

void Policy::set_prompt(uint32_t branch, std::span<const int32_t> ids, frt_stream stream) const {
  if (branch >= kBranches || ids.size() > kPrompt) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "branch " + std::to_string(branch) + " with " +
                                          std::to_string(ids.size()) + " tokens; there are 2 of 8");
  }
  const auto length = static_cast<int32_t>(ids.size());
  upload(prompt_, ids, stream, uint64_t{branch} * kPrompt);
  upload(lengths_, std::span(&length, 1), stream, branch);
}

uint32_t Policy::tell(uint32_t branch, const char* instruction, frt_stream stream) {
  if (has_defect("no_words") || has_defect("no_words_no_ids")) {
    throw Error(FRT_ERR_BAD_STATE, "there is no tokenizer");
  }
  if (has_defect("set_prompt_any_branch") && branch >= kBranches) return 0;
  std::vector<int32_t> ids;
  for (const char c : std::string_view(instruction)) ids.push_back(static_cast<unsigned char>(c));
  if (has_defect("set_prompt_ascii") &&
      std::ranges::any_of(ids, [](int32_t id) { return id > 127; })) {
    std::abort();
  }
  if (has_defect("set_prompt_refusal_writes") && branch < kBranches && ids.size() > kPrompt) {
    upload(prompt_, std::span<const int32_t>(ids).first(kPrompt), stream,
           uint64_t{branch} * kPrompt);
  }
  told_ = true;
  if (has_defect("set_prompt_remembers") && ids.empty()) remembers_ = true;
  if (has_defect("set_prompt_borrows")) borrowed_ = instruction;
  const auto count = static_cast<uint32_t>(ids.size());
  if (has_defect("set_prompt_ignored")) return count;
  set_prompt(branch, ids, stream);
  if (has_defect("set_prompt_all_branches")) set_prompt(kBranches - 1 - branch, ids, stream);
  return has_defect("set_prompt_miscounts") ? count + 1 : count;
}

void Policy::set_guidance(std::span<const float> strengths, frt_stream stream) const {
  if (has_defect("guidance_ignored")) return;
  if (strengths.size() != 1 && strengths.size() != kSteps) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                std::to_string(strengths.size()) + " strengths; expected 1 or 2");
  }
  if (!has_defect("guidance_unchecked")) require_finite(strengths, "a strength");
  for (const float one : strengths) {
    if (one < 1) throw Error(FRT_ERR_OUT_OF_RANGE, "a strength is below 1");
  }
  const std::vector<float> all = {strengths.front(), strengths.back()};
  upload(beta_, std::span<const float>(all), stream);
}

void Policy::set_continuation(const frt_policy_previous& previous, frt_stream stream) const {
  if (has_defect("previous_ignored")) return;
  const bool none = previous.mode == FRT_CONTINUE_NONE;
  const bool known = previous.mode <= FRT_CONTINUE_CLEAN && previous.schedule <= FRT_SCHEDULE_ZEROS;
  if (!known && !has_defect("previous_unchecked")) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "no such mode or schedule");
  }
  const bool clean = previous.mode == FRT_CONTINUE_CLEAN;
  if (clean && previous.delay > kTrainedDelay) {
    throw Error(FRT_ERR_UNSUPPORTED, "the policy was trained with a delay of 1 row at most");
  }
  const uint32_t rows = none ? 0 : previous.rows;
  if (rows > kHorizon || (rows > 0 && !previous.actions) || (!none && previous.delay > rows)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "rows or a delay that are not there");
  }
  std::vector<float> chunk(kChunk), weights(kHorizon);
  if (rows > 0) std::copy_n(previous.actions, rows * kActions, chunk.begin());
  require_finite(chunk, "an action");
  const bool guided = previous.mode == FRT_CONTINUE_GUIDED;
  for (uint32_t row = 0; guided && row < std::min(rows, previous.execution_horizon); ++row) {
    weights[row] = row < previous.delay || previous.schedule == FRT_SCHEDULE_ONES ? 1 : 0;
  }
  frt_policy_continuation control{};
  const bool locks =
      previous.mode == FRT_CONTINUE_LOCKED || (clean && !has_defect("clean_ignored"));
  control.locked = locks ? static_cast<int32_t>(previous.delay) : 0;
  control.guidance_cap = previous.guidance_cap == 0 ? 10 : previous.guidance_cap;
  upload(previous_, std::span<const float>(chunk), stream);
  upload(weights_, std::span<const float>(weights), stream);
  upload(continuation_, std::span<const frt_policy_continuation>(&control, 1), stream);
}

// ---- observation ---------------------------------------------------------------------------

frt_observed Policy::write(const frt_observation& given, frt_stream stream) const {
  const auto find = [&](std::string_view name) -> const frt_array& {
    for (uint32_t i = 0; i < given.array_count; ++i) {
      if (given.arrays[i].name == name) return given.arrays[i];
    }
    throw Error(FRT_ERR_FORMAT, "'" + std::string(name) + "' is missing");
  };
  const auto require = [](const frt_array& array, frt_dtype dtype, uint64_t count) {
    if (array.dtype == dtype && frt::array_elements(array) == count) return;
    throw Error(FRT_ERR_FORMAT,
                std::string("'") + array.name + "' is of another type or size than it must be");
  };
  const frt_array& image = find("image");
  const frt_array& state = find("state");
  require(image, FRT_DTYPE_U8, kPixels);
  require(state, FRT_DTYPE_F32, kState);
  const std::span values(static_cast<const float*>(state.data), kState);
  require_finite(values, "the state");
  if (given.prompt && (has_defect("no_words") || has_defect("no_words_no_ids"))) {
    throw Error(FRT_ERR_BAD_STATE, "there is no tokenizer");
  }
  if (given.prompt_tokens && has_defect("no_words_no_ids")) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "give the instruction");
  }
  const bool told = given.prompt || given.prompt_tokens;
  const bool kept =
      has_defect("prompt_kept") || (has_defect("set_prompt_becomes_default") && told_);
  if (!told && !kept) {
    throw Error(has_defect("no_prompt_oddly") ? FRT_ERR_INVALID_ARGUMENT : FRT_ERR_NOT_FOUND,
                "there is no instruction, and no default one");
  }
  std::vector<int32_t> ids;
  if (given.prompt_tokens) {
    ids.assign(given.prompt_tokens, given.prompt_tokens + given.prompt_token_count);
  }
  for (const char c : std::string_view(given.prompt ? given.prompt : "")) {
    ids.push_back(static_cast<unsigned char>(c));
  }
  if (ids.size() > kPrompt) throw Error(FRT_ERR_OUT_OF_RANGE, "the prompt has too many tokens");
  const int32_t valid = 1;
  upload(images_, std::span(static_cast<const uint8_t*>(image.data), kPixels), stream);
  upload(mask_, std::span(&valid, 1), stream);
  upload(values_, values, stream);
  for (uint32_t branch = 0; branch < kBranches && told; ++branch) {
    set_prompt(branch, ids, stream);
  }
  frt_observed observed{};
  observed.struct_size = sizeof(observed);
  observed.state_count = kState;
  observed.views = 1;
  observed.prompt = kPrompt;
  std::copy(values.begin(), values.end(), observed.state);
  return observed;
}

void Policy::finish(const float* actions, double* robot) {
  for (uint32_t i = 0; i < kChunk; ++i) {
    if (!std::isfinite(actions[i])) {
      throw Error(FRT_ERR_FORMAT, "action " + std::to_string(i) + " is not finite");
    }
  }
  std::copy_n(actions, kChunk, robot);
  if (has_defect("finish_behind")) robot[kChunk] = 0;
}

// ---- calibration ---------------------------------------------------------------------------

void Policy::begin_calibration() {
  if (has_defect("calibration_keeps")) return;
  frames_ = 0;
  largest_ = 0;
}

void Policy::note(const frt_policy_shape& shape, frt_stream stream) {
  frt_shape_key key = 0;
  frt::check(key_of(shape, key), "no such variant");
  context_.checked(context_.table().stream_sync(stream), "note");
  ++frames_;
  for (uint32_t i = 0; i < kChunk; ++i) {
    const float value = std::fabs(noise_.pointer<float>()[i]);
    const bool kept = std::isnan(value) && !has_defect("calibration_unchecked");
    largest_ = kept ? std::numeric_limits<float>::infinity() : std::fmax(largest_, value);
  }
}

std::string Policy::calibration(double margin) const {
  if (!(margin >= 1)) throw Error(FRT_ERR_INVALID_ARGUMENT, "the margin is below 1");
  if (frames_ == 0) throw Error(FRT_ERR_BAD_STATE, "no frame was noted");
  if (!std::isfinite(largest_)) throw Error(FRT_ERR_FORMAT, "a frame had NaN or infinity");
  return std::to_string(static_cast<double>(largest_) * margin);
}

// ---- tables --------------------------------------------------------------------------------

namespace {

Policy& self(frt_model model) {
  return model_of(model).policy();
}

frt_status infer_key(frt_model, const frt_policy_shape* shape, frt_shape_key* key) {
  return guard(nullptr, [&] {
    return Policy::key_of(frt::read_table<frt_policy_shape>(shape, "the host"), *key);
  });
}

}  // namespace

const frt_role_policy_v1& policy_table() {
  static constexpr frt_role_policy_v1 kTable = {
      sizeof(frt_role_policy_v1),
      0,
      [](frt_model model, frt_policy_info* info) { return frt::fill(info, self(model).role()); },
      infer_key,
      nullptr,
      nullptr,
      [](frt_model model, uint32_t branch, const char* instruction, const char*, frt_stream stream,
         uint32_t* tokens, frt_error* error) -> frt_status {
        if (has_defect("set_prompt_silent") && instruction[0] == '\0') {
          return FRT_ERR_INVALID_ARGUMENT;
        }
        return guard(error, [&] {
          const uint32_t count = self(model).tell(branch, instruction, stream);
          if (!tokens && has_defect("set_prompt_wants_tokens")) std::abort();
          if (tokens) *tokens = count;
        });
      },
      [](frt_model model, const float* strengths, uint64_t count, frt_stream stream,
         frt_error* error) {
        return guard(error, [&] { self(model).set_guidance({strengths, count}, stream); });
      },
      [](frt_model model, const frt_policy_previous* previous, frt_stream stream,
         frt_error* error) {
        return guard(error, [&] {
          self(model).set_continuation(frt::read_table<frt_policy_previous>(previous, "the host"),
                                       stream);
        });
      },
      nullptr,
      nullptr};
  return kTable;
}

const frt_observation_v1& observation_table() {
  static constexpr frt_observation_v1 kTable = {
      sizeof(frt_observation_v1), 0,
      [](frt_model, frt_observation_info* out) {
        frt_observation_info info{};
        info.struct_size = sizeof(info);
        info.action_dim = kActions;
        info.state_dim = kState;
        info.names = R"([{"name": "image", "kind": "image", "shape": [2, 2, 3]},
                         {"name": "state", "kind": "state", "shape": [3]}])";
        info.metadata = "{}";
        return frt::fill(out, info);
      },
      [](frt_model model, const frt_observation* given, frt_stream stream, frt_observed* out,
         frt_error* error) {
        return guard(error, [&] {
          if (has_defect("types_judged") && given->arrays[0].dtype >= FRT_DTYPE_COUNT) {
            throw Error(FRT_ERR_INVALID_ARGUMENT, "there is no such type");
          }
          return frt::fill(out,
                           self(model).write(frt::read_observation(given, "the host"), stream));
        });
      },
      [](frt_model, const frt_observed*, const float* actions, double* robot, frt_error* error) {
        return guard(error, [&] { Policy::finish(actions, robot); });
      }};
  return kTable;
}

const frt_calibration_v1& calibration_table() {
  static constexpr frt_calibration_v1 kTable = {
      sizeof(frt_calibration_v1), 0,
      [](frt_model model, frt_error* error) {
        return guard(error, [&] { self(model).begin_calibration(); });
      },
      [](frt_model model, const frt_policy_shape* shape, frt_stream stream, frt_error* error) {
        return guard(error, [&] {
          self(model).note(frt::read_table<frt_policy_shape>(shape, "the host"), stream);
        });
      },
      [](frt_model model, double margin, frt_sink sink, void* user, frt_error* error) {
        return guard(error, [&] {
          const std::string text = self(model).calibration(margin);
          return sink(user, text.data(), text.size());
        });
      }};
  return kTable;
}

}  // namespace small
