// SPDX-License-Identifier: Apache-2.0
// observation.hpp - what an openpi client sends, as named arrays, and what it gets back.
//
// A request is a map: arrays under names that the model knows, and "prompt". Nested maps become
// names with '/' ({"images": {"cam_high": ..}} is "images/cam_high"). What is no array, number or
// text is ignored. Keys beyond openpi's: "noise", "num_steps", "seed", "prompt_token_ids", "rl"
// {"beta", "positive"}, "rtc" {"prev", "delay", "horizon"}.
#pragma once

#include <frt/observation.h>

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
  std::string name;
  frt_dtype dtype = FRT_DTYPE_NONE;
  uint32_t rank = 0;  // 0: one value
  std::array<uint64_t, FRT_ARRAY_MAX_RANK> shape{};
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
  bool has_noise = false;  // among the arrays
  // Real-time chunking: what is left of the last chunk, the rows already under way, and how many
  // rows are bound to it.
  const WireArray* previous = nullptr;
  uint32_t delay = 0, execution_horizon = 0;

  // Null if there is none.
  const WireArray* find(std::string_view name) const noexcept;
};

// Reads a request. Throws FRT_ERR_FORMAT, naming the key, what was expected and what was found.
WireRequest read_request(const Message& message);

// The same arrays for a model, valid while `request` and its message are. Data that is not aligned
// for its type is copied into `aligned`.
std::vector<frt_array> to_arrays(const WireRequest& request, std::vector<std::string>& aligned);

// The reply of openpi's server: actions as f64 (rows, width), timings in milliseconds.
// `previous_total_ms` < 0: the connection's first reply.
std::string write_reply(std::span<const double> actions, uint64_t width, double infer_ms,
                        double server_ms, double previous_total_ms);

}  // namespace frt::host
