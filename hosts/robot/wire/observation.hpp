// SPDX-License-Identifier: Apache-2.0
// observation.hpp - what an openpi client sends, as named arrays, and what it gets back.
//
// A request is a map: arrays under keys that the robot's preset fixes, and "prompt". Nested maps
// become names with '/' ({"images": {"cam_high": ..}} is "images/cam_high"). Unknown keys are kept
// as arrays and otherwise ignored. Keys beyond openpi's: "noise", "num_steps", "seed",
// "prompt_token_ids", "rl" {"beta", "positive"}, "rtc" {"prev", "delay", "horizon"}.
#pragma once

#include <frt/base.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "robot/wire/message.hpp"

namespace frt::host {

// An array inside a message: C order, any alignment.
struct WireArray {
  static constexpr uint32_t kMaxRank = 4;

  std::string name;
  frt_dtype dtype = FRT_DTYPE_NONE;
  uint32_t rank = 0;  // 0: one value
  std::array<uint64_t, kMaxRank> shape{};
  std::string_view data;
  double scalar = 0;  // a plain number of the message, with rank 0, f64 and no data

  uint64_t count() const noexcept;  // values
  // Value i as a number, whatever the type.
  double value(uint64_t i) const noexcept;
};

// One request, decoded. Views point into the message.
struct WireRequest {
  std::vector<WireArray> arrays;
  std::optional<std::string> prompt;
  std::optional<uint64_t> seed;
  std::optional<uint32_t> steps;
  std::optional<double> beta;
  std::optional<bool> positive;  // which advantage the prompt claims
  std::vector<int32_t> prompt_ids;
  std::vector<float> noise;
  // Real-time chunking: what is left of the last chunk, the rows already under way, and how many
  // rows are bound to it.
  const WireArray* previous = nullptr;
  uint32_t delay = 0, execution_horizon = 0;

  // Null if there is none.
  const WireArray* find(std::string_view name) const noexcept;
};

// Reads a request. Throws FRT_ERR_FORMAT, naming the key, what was expected and what was found.
WireRequest read_request(const Message& message);

// Which arrays a robot sends: one image per view of the model, and the parts of its state in order.
struct InputKeys {
  std::vector<std::string> images;
  std::vector<std::string> state;
};

// The keys of a preset: "libero", "droid", "aloha", "reach". Throws FRT_ERR_NOT_FOUND with the
// names there are.
InputKeys preset_keys(const std::string& preset);
const std::vector<std::string>& preset_names();

// The parts of the state, one after the other. Throws FRT_ERR_FORMAT if a part is missing, the
// sizes do not add up to `out.size()`, or a value is not finite.
void gather_state(const WireRequest& request, const InputKeys& keys, std::span<float> out);

// An image as u8 (height, width, 3): floats in 0..1 are scaled, (3, height, width) is turned, as
// openpi's server does. Throws FRT_ERR_FORMAT if it is no image, FRT_ERR_MISMATCH with both sizes if
// it has another size.
void copy_image(const WireArray& image, uint32_t height, uint32_t width, std::span<uint8_t> out);

// The reply of openpi's server: actions as f64 (rows, width), timings in milliseconds.
// `previous_total_ms` < 0: the connection's first reply.
std::string write_reply(std::span<const float> actions, uint64_t width, double infer_ms,
                        double server_ms, double previous_total_ms);

}  // namespace frt::host
