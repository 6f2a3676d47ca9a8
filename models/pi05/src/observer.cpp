// SPDX-License-Identifier: Apache-2.0
// The order of openpi: robot transform (ALOHA), normalise, bins and prompt; back: unnormalise, add
// the transformed state where actions are differences, robot transform, the robot's dimensions.
#include "observer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>
#include <frt/models/json.hpp>

#include "prompt.hpp"

namespace frt::pi05 {
namespace {

constexpr std::string_view kPositive = "positive";
constexpr std::int64_t kMaxImageSide = 16384;  // pixels
// No piece of the vocabulary spells more: a longer instruction is refused before it is tokenised.
constexpr std::size_t kTokenBytes = 64;

[[noreturn]] void refuse(frt_status status, const std::string& text) {
  throw Error(status, "observation: " + text);
}

std::string shape_text(const frt_array& array) {
  std::string text = "[";
  for (std::uint32_t i = 0; i < array.rank; ++i) {
    text += (i ? ", " : "") + std::to_string(array.shape[i]);
  }
  return text + "]";
}

std::uint64_t elements(const frt_array& array) {
  std::uint64_t count = 1;
  if (array.rank > FRT_ARRAY_MAX_RANK) {
    refuse(FRT_ERR_INVALID_ARGUMENT, std::string("'") + array.name + "' has too many dimensions");
  }
  for (std::uint32_t i = 0; i < array.rank; ++i) {
    if (array.shape[i] < 0 || array.shape[i] > (1 << 24)) {
      refuse(FRT_ERR_INVALID_ARGUMENT,
             std::string("'") + array.name + "' has the shape " + shape_text(array));
    }
    count *= static_cast<std::uint64_t>(array.shape[i]);
    if (count > (std::uint64_t{1} << 32)) {
      refuse(FRT_ERR_INVALID_ARGUMENT, std::string("'") + array.name + "' is too large");
    }
  }
  return count;
}

template <class T>
double number_as(const void* data, std::uint64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + i * sizeof(T), sizeof(T));
  return static_cast<double>(value);
}

double number_at(const frt_array& array, std::uint64_t i) {
  switch (array.dtype) {
    case FRT_DTYPE_F32:
      return number_as<float>(array.data, i);
    case FRT_DTYPE_F64:
      return number_as<double>(array.data, i);
    case FRT_DTYPE_F16: {
      std::uint16_t bits;
      std::memcpy(&bits, static_cast<const std::byte*>(array.data) + i * 2, 2);
      return static_cast<double>(models::f16_to_f32(bits));
    }
    case FRT_DTYPE_U8:
    case FRT_DTYPE_BOOL:
      return number_as<std::uint8_t>(array.data, i);
    case FRT_DTYPE_I8:
      return number_as<std::int8_t>(array.data, i);
    case FRT_DTYPE_I16:
      return number_as<std::int16_t>(array.data, i);
    case FRT_DTYPE_I32:
      return number_as<std::int32_t>(array.data, i);
    case FRT_DTYPE_I64:
      return number_as<std::int64_t>(array.data, i);
    default:
      refuse(FRT_ERR_INVALID_ARGUMENT, std::string("'") + array.name + "' has the type " +
                                           dtype_name(array.dtype) + ", expected numbers");
  }
}

void append_finite(const frt_array& array, std::vector<double>& out) {
  const std::uint64_t count = elements(array);
  for (std::uint64_t i = 0; i < count; ++i) {
    const double value = number_at(array, i);
    if (!std::isfinite(value)) {
      refuse(FRT_ERR_INVALID_ARGUMENT,
             std::string("'") + array.name + "' holds NaN or infinity at " + std::to_string(i));
    }
    out.push_back(value);
  }
}

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

// ---- staging ---------------------------------------------------------------------------------

std::byte* Staging::begin() {
  if (in_flight_) copied_.sync();
  in_flight_ = false;
  return memory_.pointer<std::byte>();
}

void Staging::submit(std::span<const Part> parts, frt_stream stream) {
  copies_.clear();
  for (const Part& part : parts) {
    copies_.push_back({part.target, part.target_offset, memory_.handle(), part.offset, part.bytes});
  }
  const Context& context = memory_.context();
  context.checked(context.table().buffer_copy_batch(copies_.data(), copies_.size(), stream),
                  "upload of an observation");
  context.checked(context.table().event_record(copied_.handle(), stream), "event_record");
  in_flight_ = true;
}

// ---- observer --------------------------------------------------------------------------------

Observer::Places Observer::places(const Engine& engine, const Dims& dims) {
  const Setup& setup = engine.setup();
  Places places;
  std::uint64_t offset = 0;
  const auto take = [&](frt_dtype dtype, std::int64_t count) {
    const std::uint64_t at = offset;
    offset += aligned(bytes_of(dtype, count));
    return at;
  };
  places.images = take(setup.image_dtype, setup.views * dims.image * dims.image * 3);
  places.mask = take(FRT_DTYPE_I32, setup.views);
  places.tokens = take(FRT_DTYPE_I32, setup.branches * setup.max_prompt);
  places.lengths = take(FRT_DTYPE_I32, setup.branches);
  places.noise = take(FRT_DTYPE_F32, setup.horizon * dims.action_dim);
  places.bytes = offset;
  return places;
}

Observer::Observer(const Engine& engine, const Config& config, Interface face,
                   const models::SentencePiece* tokenizer, PromptForm form)
    : engine_(engine),
      dims_(config.dims),
      max_prompt_(engine.setup().max_prompt),
      face_(std::move(face)),
      tokenizer_(tokenizer),
      form_(std::move(form)),
      places_(places(engine, config.dims)),
      staging_(engine.context(), places_.bytes, "observation"),
      prompt_staging_(engine.context(),
                      aligned(bytes_of(FRT_DTYPE_I32, max_prompt_)) + sizeof(std::int32_t),
                      "prompt") {
  for (std::size_t i = 0; i < face_.cameras.size(); ++i) {
    resizers_.emplace_back(models::ImageSize{dims_.image, dims_.image});
  }
  bytes_.reserve(std::size_t{1} << 20);
}

void Observer::require_statistics() const {
  if (face_.has_statistics) return;
  throw Error(FRT_ERR_BAD_STATE, "no normalisation statistics: " + face_.statistics_from);
}

// {"positive": false}: a prompt that claims the other advantage, where the tag names one.
bool Observer::wants_positive(const char* options) const {
  if (!options || !options[0]) return true;
  bool positive = true;
  const models::Json json = io::parse_json(options, "options");
  for (const auto& [name, value] : json.items()) {
    if (name != "positive" || !value.is_boolean()) {
      refuse(FRT_ERR_INVALID_ARGUMENT,
             "option '" + name + "', expected \"positive\": true or false");
    }
    positive = value.get<bool>();
    const bool tagged = std::ranges::any_of(form_.tags, [](const std::string& tag) {
      return tag.find(kPositive) != std::string::npos;
    });
    if (!tagged) {
      refuse(
          FRT_ERR_UNSUPPORTED,
          "option 'positive': no tag of this policy claims an advantage (frt.recap_cfg has tags)");
    }
  }
  return positive;
}

void Observer::check_length(std::size_t tokens) const {
  if (tokens == 0) throw Error(FRT_ERR_INVALID_ARGUMENT, "the prompt has no tokens");
  if (tokens <= static_cast<std::size_t>(max_prompt_)) return;
  throw Error(FRT_ERR_OUT_OF_RANGE, "the prompt has " + std::to_string(tokens) +
                                        " tokens, at most " + std::to_string(max_prompt_) +
                                        " can be read; shorten the instruction");
}

void Observer::check_ids(std::span<const std::int32_t> ids) const {
  const auto wrong =
      std::ranges::find_if(ids, [&](std::int32_t id) { return id < 0 || id >= dims_.vocabulary; });
  if (wrong == ids.end()) return;
  refuse(FRT_ERR_OUT_OF_RANGE,
         "token id " + std::to_string(*wrong) + " at " + std::to_string(wrong - ids.begin()) +
             "; the vocabulary has the ids 0 to " + std::to_string(dims_.vocabulary - 1));
}

const frt_array* Observer::find(const frt_observation& observation, const std::string& name) const {
  for (std::uint32_t i = 0; i < observation.array_count; ++i) {
    if (name == observation.arrays[i].name) return &observation.arrays[i];
  }
  return nullptr;
}

// HWC or CHW, bytes or floats of 0 .. 1, any size: resized into the view's place.
void Observer::write_image(const frt_array& array, std::size_t view, std::byte* to) {
  const bool flat = array.rank != 3;
  const bool first = !flat && array.shape[0] == 3;
  if (flat || (!first && array.shape[2] != 3)) {
    refuse(FRT_ERR_INVALID_ARGUMENT, std::string("image '") + array.name + "' has the shape " +
                                         shape_text(array) +
                                         ", expected [height, width, 3] or [3, height, width]");
  }
  const bool floating = array.dtype == FRT_DTYPE_F32 || array.dtype == FRT_DTYPE_F64;
  if (!floating && array.dtype != FRT_DTYPE_U8) {
    refuse(FRT_ERR_INVALID_ARGUMENT, std::string("image '") + array.name + "' has the type " +
                                         dtype_name(array.dtype) + ", expected u8, f32 or f64");
  }
  const std::uint64_t count = elements(array);
  const models::ImageSize size = first ? models::ImageSize{array.shape[1], array.shape[2]}
                                       : models::ImageSize{array.shape[0], array.shape[1]};
  if (count == 0)
    refuse(FRT_ERR_INVALID_ARGUMENT, std::string("image '") + array.name + "' is empty");
  if (size.height > kMaxImageSide || size.width > kMaxImageSide) {
    refuse(FRT_ERR_OUT_OF_RANGE, std::string("image '") + array.name + "' has the shape " +
                                     shape_text(array) + ", a side has at most " +
                                     std::to_string(kMaxImageSide) + " pixels");
  }
  const auto plane = static_cast<std::uint64_t>(size.height * size.width);
  // The element of the array that comes as number i in HWC.
  const auto source = [&](std::uint64_t i) { return first ? i % 3 * plane + i / 3 : i; };
  const auto value = [&](std::uint64_t i) {
    const double v = number_at(array, source(i));
    if (!std::isfinite(v)) {
      refuse(FRT_ERR_INVALID_ARGUMENT,
             std::string("image '") + array.name + "' holds NaN or infinity");
    }
    return v;
  };
  models::ImageResizer& resizer = resizers_[view];
  if (face_.style == models::NormStyle::kOpenpi) {
    std::span<const std::uint8_t> pixels(static_cast<const std::uint8_t*>(array.data), count);
    if (first || floating) {
      bytes_.resize(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        bytes_[i] = floating ? static_cast<std::uint8_t>(std::clamp(255 * value(i), 0.0, 255.0))
                             : pixels[source(i)];
      }
      pixels = bytes_;
    }
    return resizer.pillow(pixels, size, reinterpret_cast<std::uint8_t*>(to));
  }
  floats_.resize(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    floats_[i] =
        floating
            ? static_cast<float>(value(i))
            : static_cast<float>(static_cast<const std::uint8_t*>(array.data)[source(i)]) / 255.0f;
  }
  auto* out = reinterpret_cast<float*>(to);
  resizer.bilinear(floats_, size, out);
  for (std::int64_t i = 0; i < dims_.image * dims_.image * 3; ++i) out[i] = out[i] * 2 - 1;
}

std::vector<double> Observer::gather_state(const frt_observation& observation) const {
  std::vector<double> state;
  for (const std::string& key : face_.state_keys) {
    const frt_array* array = find(observation, key);
    if (!array) refuse(FRT_ERR_NOT_FOUND, "no array '" + key + "' (" + face_.name + " needs it)");
    append_finite(*array, state);
  }
  if (static_cast<std::int64_t>(state.size()) != face_.state_dim) {
    refuse(FRT_ERR_INVALID_ARGUMENT, "the state has " + std::to_string(state.size()) +
                                         " values, expected " + std::to_string(face_.state_dim));
  }
  if (state.size() > FRT_OBSERVED_STATE_MAX) {
    refuse(FRT_ERR_UNSUPPORTED, "the state has " + std::to_string(state.size()) +
                                    " values, at most " + std::to_string(FRT_OBSERVED_STATE_MAX));
  }
  if (face_.adapt_to_pi) aloha_state(state);
  return state;
}

std::vector<double> Observer::normalised(std::vector<double> state) const {
  face_.state.forward(state);
  return state;
}

std::vector<std::int32_t> Observer::prompt_ids(std::size_t branch, std::string_view task,
                                               std::span<const double> state, bool positive) const {
  if (!tokenizer_) {
    throw Error(FRT_ERR_BAD_STATE,
                "the model has no tokenizer; set the option tokenizer to a SentencePiece model, or "
                "hand over token ids");
  }
  if (task.size() > kTokenBytes * static_cast<std::size_t>(max_prompt_)) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the instruction has " + std::to_string(task.size()) +
                                          " bytes, more than the " + std::to_string(max_prompt_) +
                                          " tokens of the prompt can hold; shorten it");
  }
  PromptParts parts;
  parts.task = task;
  parts.state = state;
  parts.with_state = face_.state_in_prompt;
  parts.form = form_.form;
  std::string tag = branch < form_.tags.size() ? form_.tags[branch] : "";
  const std::size_t at = tag.find(kPositive);
  if (!positive && at != std::string::npos) tag.replace(at, kPositive.size(), "negative");
  parts.tag = tag;
  return encode_prompt(*tokenizer_, build_prompt(parts), static_cast<std::size_t>(max_prompt_));
}

void Observer::set_ids(std::size_t branch, std::span<const std::int32_t> ids, frt_stream stream) {
  check_length(ids.size());
  std::byte* memory = prompt_staging_.begin();
  const auto length = static_cast<std::int32_t>(ids.size());
  const std::uint64_t at = aligned(bytes_of(FRT_DTYPE_I32, max_prompt_));
  std::memcpy(memory, ids.data(), ids.size_bytes());
  std::memcpy(memory + at, &length, sizeof(length));
  const Ports& ports = engine_.ports();
  const std::uint64_t row = bytes_of(FRT_DTYPE_I32, max_prompt_);
  const Staging::Part parts[] = {
      {ports.prompt_tokens.handle(), branch * row, 0, ids.size_bytes()},
      {ports.prompt_length.handle(), branch * sizeof(length), at, sizeof(length)}};
  prompt_staging_.submit(parts, stream);
}

void Observer::write(const frt_observation& observation, frt_stream stream,
                     frt_observed& observed) {
  require_statistics();
  const bool positive = wants_positive(observation.options);
  const std::vector<double> state = gather_state(observation);
  const std::vector<double> z = normalised(state);
  const Setup& setup = engine_.setup();

  std::vector<std::vector<std::int32_t>> prompts;
  for (std::size_t branch = 0; branch < static_cast<std::size_t>(setup.branches); ++branch) {
    if (observation.prompt_tokens) {
      if (branch > 0) {
        refuse(FRT_ERR_UNSUPPORTED, "prompt_tokens serve one branch; give the instruction");
      }
      prompts.emplace_back(observation.prompt_tokens,
                           observation.prompt_tokens + observation.prompt_token_count);
    } else {
      const std::string_view task =
          observation.prompt ? std::string_view(observation.prompt) : face_.default_prompt;
      if (!observation.prompt && task.empty()) {
        refuse(FRT_ERR_NOT_FOUND, "no prompt, and the policy has no default_prompt");
      }
      prompts.push_back(prompt_ids(branch, task, z, positive));
    }
    check_length(prompts.back().size());
    check_ids(prompts.back());
  }

  std::byte* memory = staging_.begin();
  const std::uint64_t view_bytes = bytes_of(setup.image_dtype, dims_.image * dims_.image * 3);
  std::vector<std::int32_t> mask(static_cast<std::size_t>(setup.views), 0);
  std::vector<Staging::Part> parts;
  const Ports& ports = engine_.ports();
  for (std::size_t view = 0; view < face_.cameras.size() && view < mask.size(); ++view) {
    const Camera& camera = face_.cameras[view];
    const frt_array* array = camera.key.empty() ? nullptr : find(observation, camera.key);
    if (!array && camera.required) {
      refuse(FRT_ERR_NOT_FOUND, "no image '" + camera.key + "' (" + face_.name + " needs it)");
    }
    if (!array) continue;
    const std::uint64_t at = view * view_bytes;
    write_image(*array, view, memory + places_.images + at);
    mask[view] = 1;
    parts.push_back({ports.images.handle(), at, places_.images + at, view_bytes});
  }
  const auto valid = static_cast<std::uint32_t>(std::count(mask.begin(), mask.end(), 1));
  if (valid == 0) refuse(FRT_ERR_NOT_FOUND, "no image of any camera this policy knows");

  std::memcpy(memory + places_.mask, mask.data(), mask.size() * sizeof(std::int32_t));
  parts.push_back({ports.view_mask.handle(), 0, places_.mask, mask.size() * sizeof(std::int32_t)});
  auto* lengths = reinterpret_cast<std::int32_t*>(memory + places_.lengths);
  const std::uint64_t row = bytes_of(FRT_DTYPE_I32, max_prompt_);
  std::size_t longest = 0;
  for (std::size_t branch = 0; branch < prompts.size(); ++branch) {
    const std::uint64_t bytes = prompts[branch].size() * sizeof(std::int32_t);
    std::memcpy(memory + places_.tokens + branch * row, prompts[branch].data(), bytes);
    parts.push_back(
        {ports.prompt_tokens.handle(), branch * row, places_.tokens + branch * row, bytes});
    lengths[branch] = static_cast<std::int32_t>(prompts[branch].size());
    longest = std::max(longest, prompts[branch].size());
  }
  parts.push_back(
      {ports.prompt_length.handle(), 0, places_.lengths, prompts.size() * sizeof(std::int32_t)});
  if (const frt_array* noise = find(observation, "noise")) {
    std::vector<double> values;
    append_finite(*noise, values);
    if (static_cast<std::int64_t>(values.size()) != setup.horizon * dims_.action_dim) {
      refuse(FRT_ERR_INVALID_ARGUMENT, "'noise' has the shape " + shape_text(*noise) +
                                           ", expected [" + std::to_string(setup.horizon) + ", " +
                                           std::to_string(dims_.action_dim) + "]");
    }
    auto* to = reinterpret_cast<float*>(memory + places_.noise);
    std::transform(values.begin(), values.end(), to,
                   [](double value) { return static_cast<float>(value); });
    parts.push_back({ports.noise.handle(), 0, places_.noise, values.size() * sizeof(float)});
  }
  staging_.submit(parts, stream);

  observed.state_count = static_cast<std::uint32_t>(state.size());
  std::copy(state.begin(), state.end(), observed.state);
  observed.views = valid;
  observed.prompt = static_cast<std::uint32_t>(longest);
}

void Observer::finish(const frt_observed& observed, const float* actions, double* robot) const {
  require_statistics();
  const auto dims = static_cast<std::size_t>(dims_.action_dim);
  const auto out = static_cast<std::size_t>(face_.action_dim);
  const bool single = face_.style == models::NormStyle::kLerobot;
  if (observed.state_count > FRT_OBSERVED_STATE_MAX || observed.state_count < face_.delta.size()) {
    if (!face_.delta.empty()) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "finish: the observation has " +
                                                std::to_string(observed.state_count) +
                                                " state values, the actions are relative to " +
                                                std::to_string(face_.delta.size()));
    }
  }
  const auto refuse = [](std::size_t action, std::size_t value) {
    throw Error(FRT_ERR_FORMAT, "action " + std::to_string(action) + ", value " +
                                    std::to_string(value) +
                                    " is NaN or infinite; the chunk must not be executed");
  };
  // Values that the robot does not have, too: a network that gives such a one is out of order.
  const auto horizon = static_cast<std::size_t>(engine_.setup().horizon);
  for (std::size_t i = 0; i < horizon * dims; ++i) {
    if (!std::isfinite(actions[i])) refuse(i / dims, i % dims);
  }
  std::vector<double> row(dims);
  for (std::size_t i = 0; i < horizon; ++i) {
    for (std::size_t j = 0; j < dims; ++j) {
      row[j] = static_cast<double>(actions[i * dims + j]);
    }
    // LeRobot's statistics are those of the robot's values alone.
    face_.actions.inverse(std::span(row).first(single ? out : dims));
    for (std::size_t j = 0; j < face_.delta.size(); ++j) {
      if (!face_.delta[j]) continue;
      row[j] += observed.state[j];
      if (single) row[j] = static_cast<double>(static_cast<float>(row[j]));
    }
    if (face_.adapt_to_pi) aloha_actions(row.data());
    for (std::size_t j = 0; j < out; ++j) {
      if (!std::isfinite(row[j])) refuse(i, j);
      robot[i * out + j] = row[j];
    }
  }
}

}  // namespace frt::pi05
