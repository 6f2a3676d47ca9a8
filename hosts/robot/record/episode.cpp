// SPDX-License-Identifier: Apache-2.0
#include "robot/record/episode.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <limits>
#include <utility>

#include "robot/record/mcap.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

template <class T>
Json rows(std::span<const T> values, std::size_t width) {
  Json out = Json::array();
  for (std::size_t i = 0; i < values.size(); i += width) {
    out.push_back(std::vector<T>(values.begin() + static_cast<std::ptrdiff_t>(i),
                                 values.begin() + static_cast<std::ptrdiff_t>(i + width)));
  }
  return out;
}

constexpr uint32_t kMostValues = 65535;  // rows of a chunk, values of an action

constexpr const char* kAnySchema = R"({"type":"object"})";
// What Foxglove and Rerun know as an image.
constexpr const char* kImageSchema =
    R"({"title":"foxglove.RawImage","type":"object","properties":{"timestamp":{"type":"object","properties":{"sec":{"type":"integer"},"nsec":{"type":"integer"}}},"frame_id":{"type":"string"},"width":{"type":"integer"},"height":{"type":"integer"},"encoding":{"type":"string"},"step":{"type":"integer"},"data":{"type":"string","contentEncoding":"base64"}}})";

bool is_image(frt_dtype dtype, const std::vector<int64_t>& shape) {
  return dtype == FRT_DTYPE_U8 && shape.size() == 3 && shape[2] == 3;
}

// Arrays and meta data of a file, each checked before it is used.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : file_(path.string()), arrays_(read_npz(path)) {
    meta_ = io::parse_json(text("meta"), file_ + ", meta");
    if (!meta_.is_object()) fail("its meta data are no JSON object");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(FRT_ERR_FORMAT, file_ + " is no recorded episode: " + what);
  }
  const NpzArrays& arrays() const { return arrays_; }

  std::string text(const char* name) const {
    const std::string& text = array(name, FRT_DTYPE_U8).data;
    if (text.find('\0') != std::string::npos) {
      fail(std::string("the text '") + name + "' holds a zero byte");
    }
    return text;
  }
  // Of any shape if `shape` is empty.
  const NpyArray& array(const std::string& name, frt_dtype dtype,
                        const std::vector<uint64_t>& shape = {}) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end() || found->second.dtype != dtype ||
        (!shape.empty() && found->second.shape != shape)) {
      fail("the array '" + name + "' is missing, or has another type or shape");
    }
    return found->second;
  }
  template <class T>
  std::vector<T> values(const std::string& name, frt_dtype dtype,
                        const std::vector<uint64_t>& shape) const {
    const auto values = array(name, dtype, shape).as<T>();
    return {values.begin(), values.end()};
  }

  const Json& meta(const char* name) const {
    const auto found = meta_.find(name);
    if (found == meta_.end()) fail(std::string("its meta data have no `") + name + "`");
    return *found;
  }
  std::string meta_text(const char* name) const {
    if (!meta(name).is_string()) fail(std::string("`") + name + "` of its meta data is no text");
    return meta(name).get<std::string>();
  }
  template <class T>
  T meta_number(const char* name, T least = 0, T most = std::numeric_limits<T>::max()) const {
    const Json& value = meta(name);
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() >= least &&
                      value.get<uint64_t>() <= most;
    if (!fits) {
      fail(std::string("`") + name + "` of its meta data is no number from " +
           std::to_string(least) + " to " + std::to_string(most));
    }
    return value.get<T>();
  }

 private:
  std::string file_;
  NpzArrays arrays_;
  Json meta_;
};

}  // namespace

void EpisodeRecord::begin(EpisodeMeta meta, std::size_t chunks, std::size_t ticks) {
  meta_ = std::move(meta);
  room_for_ticks_ = ticks;
  streams_.clear();
  const std::size_t rows = meta_.horizon;
  for (auto* values : {&noise_, &network_}) {
    values->clear();
    values->reserve(chunks * rows * meta_.network_dim);
  }
  values_.clear();
  values_.reserve(chunks);
  actions_.clear();
  actions_.reserve(chunks * rows * meta_.action_dim);
  tick_action_.clear();
  tick_action_.reserve(ticks * meta_.action_dim);
  for (auto* times : {&chunk_tick_, &t_observed_, &t_submitted_, &t_ready_}) {
    times->clear();
    times->reserve(chunks);
  }
  for (auto* times : {&tick_time_, &tick_late_}) {
    times->clear();
    times->reserve(ticks);
  }
  tick_chunk_.clear();
  tick_chunk_.reserve(ticks);
  intervention_.clear();
  intervention_.reserve(ticks);
  reward_.clear();
  reward_.reserve(ticks);
}

void EpisodeRecord::add_observation(const frt_observation& observation,
                                    std::span<const float> noise, int64_t tick) {
  const bool first = streams_.empty();
  for (uint32_t i = 0; i < observation.array_count; ++i) {
    const frt_array& array = observation.arrays[i];
    const std::vector<int64_t> shape(array.shape, array.shape + array.rank);
    if (first) {
      uint64_t bytes = dtype_bits(array.dtype) / 8;
      for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
      streams_.push_back({array.name, array.dtype, shape, bytes, {}, {}});
      streams_.back().data.reserve(bytes * values_.capacity());
    }
    Stream& stream = streams_.at(i);
    if (stream.name != array.name || stream.dtype != array.dtype || stream.shape != shape) {
      throw Error(FRT_ERR_MISMATCH, "the observation's array '" + std::string(array.name) +
                                        "' changed its name, type or shape within an episode");
    }
    stream.data.append(static_cast<const char*>(array.data), stream.bytes);
  }
  noise_.insert(noise_.end(), noise.begin(), noise.end());
  chunk_tick_.push_back(tick);
}

void EpisodeRecord::add_chunk(std::span<const float> network, std::span<const double> robot,
                              float value, const ChunkTimes& times) {
  network_.insert(network_.end(), network.begin(), network.end());
  actions_.insert(actions_.end(), robot.begin(), robot.end());
  values_.push_back(value);
  t_observed_.push_back(times.observed);
  t_submitted_.push_back(times.submitted);
  t_ready_.push_back(times.ready);
}

void EpisodeRecord::add_frame(const frt_observation& observation) {
  for (std::size_t i = 0; i < streams_.size() && i < observation.array_count; ++i) {
    Stream& stream = streams_[i];
    if (stream.frames.empty()) stream.frames.reserve(stream.bytes * room_for_ticks_);
    stream.frames.append(static_cast<const char*>(observation.arrays[i].data), stream.bytes);
  }
}

void EpisodeRecord::add_tick(int64_t time, int64_t late, int32_t chunk, bool intervention,
                             std::span<const double> action, double reward) noexcept {
  tick_time_.push_back(time);
  tick_late_.push_back(late);
  tick_chunk_.push_back(chunk);
  intervention_.push_back(intervention ? 1 : 0);
  reward_.push_back(reward);
  tick_action_.insert(tick_action_.end(), action.begin(), action.end());
}

void EpisodeRecord::drop_observation() noexcept {
  const std::size_t chunks = values_.size();
  chunk_tick_.resize(chunks);
  noise_.resize(chunks * meta_.horizon * meta_.network_dim);
  for (Stream& stream : streams_) stream.data.resize(chunks * stream.bytes);
}

void EpisodeRecord::end(std::string stop_reason, bool success) {
  meta_.stop_reason = std::move(stop_reason);
  meta_.success = success;
  drop_observation();  // one whose chunk never came is no part of the episode
  for (Stream& stream : streams_) {
    if (!stream.frames.empty()) stream.frames.resize(ticks() * stream.bytes);
  }
}

std::vector<frt_array> EpisodeRecord::observation(std::size_t chunk) const {
  std::vector<frt_array> arrays;
  for (const Stream& stream : streams_) {
    frt_array array{};
    array.name = stream.name.c_str();
    array.data = stream.data.data() + chunk * stream.bytes;
    array.dtype = stream.dtype;
    array.rank = static_cast<uint32_t>(stream.shape.size());
    std::copy(stream.shape.begin(), stream.shape.end(), array.shape);
    arrays.push_back(array);
  }
  return arrays;
}

std::span<const float> EpisodeRecord::noise(std::size_t chunk) const {
  const std::size_t size = std::size_t{meta_.horizon} * meta_.network_dim;
  return std::span<const float>(noise_).subspan(chunk * size, size);
}
std::span<const float> EpisodeRecord::network_actions(std::size_t chunk) const {
  const std::size_t size = std::size_t{meta_.horizon} * meta_.network_dim;
  return std::span<const float>(network_).subspan(chunk * size, size);
}
std::span<const double> EpisodeRecord::actions(std::size_t chunk) const {
  const std::size_t size = std::size_t{meta_.horizon} * meta_.action_dim;
  return std::span<const double>(actions_).subspan(chunk * size, size);
}

Json EpisodeRecord::meta_json() const {
  return {{"manifest", meta_.manifest},
          {"episode", meta_.episode},
          {"seed", meta_.seed},
          {"policy", meta_.policy},
          {"critic", meta_.critic},
          {"success", meta_.success},
          {"beta", to_json(meta_.guidance)},
          {"hz", meta_.hz},
          {"steps", meta_.steps},
          {"horizon", meta_.horizon},
          {"action_dim", meta_.action_dim},
          {"network_dim", meta_.network_dim},
          {"fingerprints", meta_.fingerprints}};
}

void EpisodeRecord::write_npz(const std::filesystem::path& path) const {
  const uint64_t n = chunks(), t = ticks(), h = meta_.horizon;
  const uint64_t a = meta_.action_dim, d = meta_.network_dim;
  NpzArrays out;
  for (const Stream& stream : streams_) {
    NpyArray array{stream.dtype, {n}, stream.data};
    for (const int64_t extent : stream.shape) array.shape.push_back(static_cast<uint64_t>(extent));
    if (!stream.frames.empty()) {
      NpyArray frames{stream.dtype, array.shape, stream.frames};
      frames.shape[0] = t;
      out.emplace("frame/" + stream.name, std::move(frames));
    }
    out.emplace("obs/" + stream.name, std::move(array));
  }
  out.emplace("noise", npy_array<float>(FRT_DTYPE_F32, {n, h, d}, noise_));
  out.emplace("network_actions", npy_array<float>(FRT_DTYPE_F32, {n, h, d}, network_));
  out.emplace("actions", npy_array<double>(FRT_DTYPE_F64, {n, h, a}, actions_));
  out.emplace("values", npy_array<float>(FRT_DTYPE_F32, {n}, values_));
  out.emplace("chunk_tick", npy_array<int64_t>(FRT_DTYPE_I64, {n}, chunk_tick_));
  out.emplace("t_observed", npy_array<int64_t>(FRT_DTYPE_I64, {n}, t_observed_));
  out.emplace("t_submitted", npy_array<int64_t>(FRT_DTYPE_I64, {n}, t_submitted_));
  out.emplace("t_ready", npy_array<int64_t>(FRT_DTYPE_I64, {n}, t_ready_));
  out.emplace("tick_time", npy_array<int64_t>(FRT_DTYPE_I64, {t}, tick_time_));
  out.emplace("tick_late", npy_array<int64_t>(FRT_DTYPE_I64, {t}, tick_late_));
  out.emplace("tick_action", npy_array<double>(FRT_DTYPE_F64, {t, a}, tick_action_));
  out.emplace("tick_chunk", npy_array<int32_t>(FRT_DTYPE_I32, {t}, tick_chunk_));
  out.emplace("intervention", npy_array<uint8_t>(FRT_DTYPE_U8, {t}, intervention_));
  out.emplace("reward", npy_array<double>(FRT_DTYPE_F64, {t}, reward_));
  out.emplace("prompt", npy_text(meta_.prompt));
  out.emplace("stop_reason", npy_text(meta_.stop_reason));
  out.emplace("meta", npy_text(io::json_text(meta_json())));
  ::frt::host::write_npz(path, out);
}

bool EpisodeRecord::has_frames() const noexcept {
  return ticks() > 0 && std::ranges::all_of(streams_, [&](const Stream& stream) {
           return stream.frames.size() == ticks() * stream.bytes;
         });
}

std::string EpisodeRecord::array_message(const Stream& stream, const std::string& rows,
                                         std::size_t index, uint64_t time) {
  const std::string_view data = std::string_view(rows).substr(index * stream.bytes, stream.bytes);
  if (is_image(stream.dtype, stream.shape)) {
    return Json{{"timestamp", {{"sec", time / 1000000000}, {"nsec", time % 1000000000}}},
                {"frame_id", stream.name},
                {"width", stream.shape[1]},
                {"height", stream.shape[0]},
                {"encoding", "rgb8"},
                {"step", stream.shape[1] * 3},
                {"data", base64(data)}}
        .dump();
  }
  Json message = {
      {"dtype", dtype_name(stream.dtype)}, {"shape", stream.shape}, {"data", base64(data)}};
  if (stream.dtype == FRT_DTYPE_F32) {
    const auto* floats = reinterpret_cast<const float*>(data.data());
    message["values"] = std::vector<float>(floats, floats + stream.bytes / sizeof(float));
  }
  return message.dump();
}

void EpisodeRecord::write_mcap(const std::filesystem::path& path) const {
  McapWriter out(path);
  std::vector<uint16_t> topics;
  for (const Stream& stream : streams_) {
    const bool image = is_image(stream.dtype, stream.shape);
    topics.push_back(out.add_channel("/" + stream.name, image ? "foxglove.RawImage" : "frt.Array",
                                     image ? kImageSchema : kAnySchema));
  }
  const uint16_t episode = out.add_channel("/episode", "frt.Episode", kAnySchema);
  const uint16_t chunk_topic = out.add_channel("/chunk", "frt.Chunk", kAnySchema);
  const uint16_t action_topic = out.add_channel("/action", "frt.Action", kAnySchema);
  const uint16_t value_topic = out.add_channel("/value", "frt.Value", kAnySchema);
  const uint64_t start = static_cast<uint64_t>(!t_observed_.empty()  ? t_observed_.front()
                                               : !tick_time_.empty() ? tick_time_.front()
                                                                     : 0);
  Json head = meta_json();
  head["prompt"] = meta_.prompt;
  head["stop_reason"] = meta_.stop_reason;
  out.write(episode, start, head.dump());
  const bool every_tick = has_frames();
  for (std::size_t i = 0; i < chunks(); ++i) {
    const auto time = static_cast<uint64_t>(t_observed_[i]);
    for (std::size_t s = 0; s < streams_.size() && !every_tick; ++s) {
      out.write(topics[s], time, array_message(streams_[s], streams_[s].data, i, time));
    }
    out.write(value_topic, time, Json{{"value", values_[i]}}.dump());
    out.write(chunk_topic, static_cast<uint64_t>(t_ready_[i]),
              Json{{"tick", chunk_tick_[i]},
                   {"observed", t_observed_[i]},
                   {"submitted", t_submitted_[i]},
                   {"noise", rows(noise(i), meta_.network_dim)},
                   {"network_actions", rows(network_actions(i), meta_.network_dim)},
                   {"actions", rows(actions(i), meta_.action_dim)}}
                  .dump());
  }
  for (std::size_t i = 0; i < ticks(); ++i) {
    const auto time = static_cast<uint64_t>(tick_time_[i]);
    for (std::size_t s = 0; s < streams_.size() && every_tick; ++s) {
      out.write(topics[s], time, array_message(streams_[s], streams_[s].frames, i, time));
    }
    const auto action =
        std::span<const double>(tick_action_).subspan(i * meta_.action_dim, meta_.action_dim);
    out.write(action_topic, time,
              Json{{"action", std::vector<double>(action.begin(), action.end())},
                   {"chunk", tick_chunk_[i]},
                   {"intervention", intervention_[i] != 0},
                   {"reward", reward_[i]},
                   {"late_ns", tick_late_[i]}}
                  .dump());
  }
  out.close();
}

EpisodeRecord EpisodeRecord::read(const std::filesystem::path& path) {
  const Reader file(path);
  EpisodeRecord record;
  EpisodeMeta& m = record.meta_;
  m.manifest = file.meta_text("manifest");
  m.episode = file.meta_number<uint64_t>("episode");
  m.seed = file.meta_number<uint64_t>("seed");
  m.policy = file.meta_text("policy");
  m.critic = file.meta_text("critic");
  if (!file.meta("success").is_boolean()) {
    file.fail("`success` of its meta data is neither true nor false");
  }
  m.success = file.meta("success").get<bool>();
  try {
    m.guidance = strengths_from(file.meta("beta"));
  } catch (const Error& error) {
    file.fail(std::string("`beta` of its meta data: ") + error.what());
  }
  if (!file.meta("hz").is_number()) file.fail("`hz` of its meta data is no number");
  m.hz = file.meta("hz").get<double>();
  m.steps = file.meta_number<uint32_t>("steps");
  m.horizon = file.meta_number<uint32_t>("horizon", 1, kMostValues);
  m.action_dim = file.meta_number<uint32_t>("action_dim", 1, kMostValues);
  m.network_dim = file.meta_number<uint32_t>("network_dim", 1, kMostValues);
  m.fingerprints = file.meta("fingerprints");
  if (!m.fingerprints.is_object()) file.fail("`fingerprints` of its meta data is no object");
  m.prompt = file.text("prompt");
  m.stop_reason = file.text("stop_reason");
  const uint64_t n = file.array("values", FRT_DTYPE_F32).count();
  const uint64_t h = m.horizon, a = m.action_dim, d = m.network_dim;
  record.values_ = file.values<float>("values", FRT_DTYPE_F32, {n});
  record.noise_ = file.values<float>("noise", FRT_DTYPE_F32, {n, h, d});
  record.network_ = file.values<float>("network_actions", FRT_DTYPE_F32, {n, h, d});
  record.actions_ = file.values<double>("actions", FRT_DTYPE_F64, {n, h, a});
  for (const auto& [name, array] : file.arrays()) {
    if (!name.starts_with("obs/")) continue;
    const std::vector<uint64_t>& shape = array.shape;
    const bool usable = !shape.empty() && shape.size() <= FRT_ARRAY_MAX_RANK + 1 && shape[0] == n &&
                        std::find(shape.begin() + 1, shape.end(), 0) == shape.end();
    if (!usable) file.fail("the array '" + name + "' has a shape that no observation has");
    Stream stream{name.substr(4), array.dtype, {}, n ? array.data.size() / n : 0, array.data, {}};
    stream.shape.assign(shape.begin() + 1, shape.end());
    record.streams_.push_back(std::move(stream));
  }
  return record;
}

}  // namespace frt::host
