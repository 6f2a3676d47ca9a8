// SPDX-License-Identifier: Apache-2.0
// observation.hpp - what an openpi client sends, as named arrays, and what it gets back.
//
// A request is a map: arrays under names that the model knows, and "prompt". Nested maps become
// names with '/' ({"images": {"cam_high": ..}} is "images/cam_high"); lists of numbers are arrays
// of f64. Anything else is ignored. Names and the prompt are UTF-8; a name is there once, without
// control characters, and has at most kMaxName bytes; there are at most kMaxArrays arrays. Errors
// show names and values cut and escaped. Keys beyond openpi's:
//
//   noise, num_steps, seed, prompt_token_ids
//   rl    {beta, positive}: beta is a strength, one per step, or (steps, branches)
//   rtc   {prev, delay, horizon, mode, schedule, max_guidance}: real-time chunking, as
//         frt_policy_previous; mode is "guided", "locked" or "clean", schedule "linear", "exp",
//         "ones" or "zeros". `prev` is what is left of the last reply's "network_actions", which
//         come with every reply to a request with `rtc`, be it empty.
#pragma once

#include <frt/observation.h>

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "robot/guidance.hpp"
#include "robot/service/wire/message.hpp"

namespace frt::host {

constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxArrays = 256;
constexpr uint64_t kMaxPromptIds = 65536;

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

// Real-time chunking; see frt_policy_previous.
struct WireContinuation {
  const WireArray* previous = nullptr;  // null: there is no chunk before
  uint32_t mode = FRT_CONTINUE_GUIDED;
  uint32_t schedule = FRT_SCHEDULE_LINEAR;
  uint32_t delay = 0;
  uint32_t execution_horizon = 0;  // 0: all rows
  double guidance_cap = 0;         // 0: the model's
};

// One request, decoded; it may be moved, not copied. Views point into the message.
struct WireRequest {
  WireRequest() = default;
  WireRequest(WireRequest&&) = default;
  WireRequest& operator=(WireRequest&&) = default;

  std::vector<WireArray> arrays;
  std::optional<std::string> prompt;
  std::optional<uint64_t> seed;
  std::optional<uint32_t> steps;
  std::optional<GuidanceStrengths> guidance;
  std::optional<bool> positive;  // which advantage the prompt claims
  std::vector<int32_t> prompt_ids;
  bool has_noise = false;  // among the arrays
  std::optional<WireContinuation> continuation;
  std::deque<std::vector<double>> lists;  // what arrays that came as lists point to

  // Null if there is none.
  const WireArray* find(std::string_view name) const noexcept;
};

// Reads a request. Throws FRT_ERR_FORMAT, naming the key, what was expected and what was found.
WireRequest read_request(const Message& message);

// The same arrays for a model, valid while `request` and its message are. Data that is not aligned
// for its type is copied into `aligned`.
std::vector<frt_array> to_arrays(const WireRequest& request, std::vector<std::string>& aligned);

// The reply of openpi's server.
struct WireReply {
  std::span<const double> actions;           // (rows, width)
  uint64_t width = 0;                        // values per action
  std::span<const float> network_actions{};  // (rows, any width); empty: not sent
  double infer_ms = 0, server_ms = 0;
  double previous_total_ms = -1;  // < 0: the connection's first reply
};
std::string write_reply(const WireReply& reply);

}  // namespace frt::host
