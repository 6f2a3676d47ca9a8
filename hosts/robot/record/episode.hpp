// SPDX-License-Identifier: Apache-2.0
// episode.hpp - everything that happened in one episode: what was seen, computed and sent, and
// when.
//
// Complete enough to train from and to repeat: feeding a chunk's observation and noise to the same
// model gives its actions again, bit for bit. While the episode runs, adding a tick allocates
// nothing.
//
// Arrays of the .npz file (N chunks, T ticks, H rows, A values of a robot action, D of the
// network's):
//   obs/<name> (N, ...)   the observation's arrays         prompt (text)   the instruction
//   noise (N, H, D) f32   network_actions (N, H, D) f32    actions (N, H, A) f64
//   values (N) f32        of the critic; NaN without one
//   chunk_tick (N) i64    the tick that the observation belongs to
//   t_observed, t_submitted, t_ready (N) i64               nanoseconds of CLOCK_MONOTONIC
//   tick_time (T) i64     tick_late (T) i64 ns             tick_action (T, A) f64: what was sent
//   tick_chunk (T) i32    the chunk it came from; -1: the safe action
//   intervention (T) u8   1: an operator had taken over
//   reward (T) f64        what the environment gave for the tick; 0 where it gives none
//   frame/<name> (T, ...) the observation's arrays before each tick, where they were asked for
//   stop_reason (text)    meta (text): JSON, see EpisodeMeta
#pragma once

#include <frt/observation.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "robot/guidance.hpp"
#include "robot/record/npz.hpp"

namespace frt::host {

struct EpisodeMeta {
  uint64_t episode = 0, seed = 0;
  std::string manifest;  // as seen from the record's folder
  std::string policy, critic, prompt, stop_reason;
  bool success = false;
  GuidanceStrengths guidance;
  double hz = 0;
  uint32_t steps = 0, horizon = 0, action_dim = 0, network_dim = 0;
  nlohmann::ordered_json fingerprints;  // what must be equal for the record to repeat
};

struct ChunkTimes {
  int64_t observed = 0, submitted = 0, ready = 0;
};

class EpisodeRecord {
 public:
  // Empties the record; room for so many chunks and ticks is made at once.
  void begin(EpisodeMeta meta, std::size_t chunks, std::size_t ticks);
  // The first observation fixes names, types and shapes; a later one that differs is
  // FRT_ERR_MISMATCH.
  void add_observation(const frt_observation& observation, std::span<const float> noise,
                       int64_t tick);
  void add_chunk(std::span<const float> network, std::span<const double> robot, float value,
                 const ChunkTimes& times);
  // Takes an observation back whose chunk never came, or must not be used.
  void drop_observation() noexcept;
  // What was seen before the next tick; all ticks of an episode have it, or none.
  void add_frame(const frt_observation& observation);  // [hot] as add_tick
  void add_tick(int64_t time, int64_t late, int32_t chunk, bool intervention,
                std::span<const double> action,
                double reward) noexcept;  // [hot] within what begin() made room for
  void end(std::string stop_reason, bool success);
  // Which manifest, and what of it must be equal for the record to repeat.
  void set_deployment(std::string manifest, nlohmann::ordered_json fingerprints) {
    meta_.manifest = std::move(manifest);
    meta_.fingerprints = std::move(fingerprints);
  }

  const EpisodeMeta& meta() const noexcept { return meta_; }
  std::size_t chunks() const noexcept { return values_.size(); }
  std::size_t ticks() const noexcept { return tick_time_.size(); }
  std::span<const float> values() const noexcept { return values_; }

  // The observation of chunk i, to feed a model again; valid while the record is not changed.
  std::vector<frt_array> observation(std::size_t chunk) const;
  std::span<const float> noise(std::size_t chunk) const;
  std::span<const float> network_actions(std::size_t chunk) const;
  std::span<const double> actions(std::size_t chunk) const;

  void write_npz(const std::filesystem::path& path) const;
  // The observation's arrays at every tick where there are frames, else of every chunk.
  void write_mcap(const std::filesystem::path& path) const;
  // Throws FRT_ERR_FORMAT if the file is no episode.
  static EpisodeRecord read(const std::filesystem::path& path);

 private:
  struct Stream {  // one array of the observation, all chunks
    std::string name;
    frt_dtype dtype;
    std::vector<int64_t> shape;  // of one
    uint64_t bytes;              // of one
    std::string data;            // of the chunks
    std::string frames;          // of the ticks
  };
  nlohmann::ordered_json meta_json() const;
  bool has_frames() const noexcept;  // of every tick
  // Row `index` of `rows`, which are those of `stream`, as a message of MCAP.
  static std::string array_message(const Stream& stream, const std::string& rows, std::size_t index,
                                   uint64_t time);

  EpisodeMeta meta_;
  std::size_t room_for_ticks_ = 0;
  std::vector<Stream> streams_;
  std::vector<float> noise_, network_, values_;
  std::vector<double> actions_, tick_action_, reward_;
  std::vector<int64_t> chunk_tick_, t_observed_, t_submitted_, t_ready_, tick_time_, tick_late_;
  std::vector<int32_t> tick_chunk_;
  std::vector<uint8_t> intervention_;
};

}  // namespace frt::host
