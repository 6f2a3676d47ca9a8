// SPDX-License-Identifier: Apache-2.0
#include "robot/policy_service.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

PolicyService::PolicyService(const PolicyModel& model, ServiceOptions options)
    : model_(model), options_(std::move(options)), runner_(model, options_.steps) {
  const frt_policy_info& info = model.info();
  if (options_.keys.images.size() < info.views) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "model '" + model.name() + "' takes " + std::to_string(info.views) +
                    " views, but the robot has " + std::to_string(options_.keys.images.size()) +
                    " image keys; give them with image_keys");
  }
  if (info.beta) runner_.set_beta(options_.beta);
  beta_ = options_.beta;
  steps_ = options_.steps;
}

std::string PolicyService::metadata() const {
  const frt_policy_info& info = model_.info();
  const auto list = [](MessageWriter& out, const std::vector<std::string>& values, std::size_t n) {
    out.array(static_cast<uint32_t>(n));
    for (std::size_t i = 0; i < n; ++i) out.text(values[i]);
  };
  MessageWriter out;
  out.map(7);
  out.text("model");
  out.text(model_.name());
  out.text("action_horizon");
  out.integer(info.horizon);
  out.text("action_dim");
  out.integer(info.action_dim);
  out.text("state_dim");
  out.integer(info.state_dim);
  out.text("image_size");
  out.array(2);
  out.integer(info.image_height);
  out.integer(info.image_width);
  out.text("image_keys");
  list(out, options_.keys.images, info.views);
  out.text("state_keys");
  list(out, options_.keys.state, info.state_dim > 0 ? options_.keys.state.size() : 0);
  return out.take();
}

void PolicyService::take_images(const WireRequest& request) {
  const frt_policy_info& info = model_.info();
  uint32_t valid = 0;
  for (uint32_t view = 0; view < info.views; ++view) {
    const WireArray* image = request.find(options_.keys.images[view]);
    runner_.view_mask()[view] = image ? 1 : 0;
    if (!image) continue;
    copy_image(*image, info.image_height, info.image_width, runner_.image(view));
    ++valid;
  }
  if (info.views > 0 && valid == 0) {
    throw Error(FRT_ERR_FORMAT, "the observation has no image; this robot's are '" +
                                    options_.keys.images.front() + "' and the like");
  }
  if (valid < info.views && !info.view_mask) {
    throw Error(FRT_ERR_FORMAT, "the observation has " + std::to_string(valid) + " of the " +
                                    std::to_string(info.views) + " views this model needs");
  }
}

void PolicyService::take_prompt(const WireRequest& request) {
  if (!request.prompt_ids.empty()) return runner_.set_prompt_ids(0, request.prompt_ids);
  if (!model_.info().prompt_tokens) return;
  const std::string& prompt = request.prompt ? *request.prompt : options_.default_prompt;
  if (prompt.empty()) {
    throw Error(FRT_ERR_FORMAT, "the observation has no 'prompt'; say what is to be done, or set "
                                "default_prompt");
  }
  nlohmann::json options = nlohmann::json::object();
  if (model_.info().state_dim > 0) {
    options["state"] = std::vector<float>(runner_.state().begin(), runner_.state().end());
  }
  if (request.positive) options["positive"] = *request.positive;
  const std::string text = options.dump();
  for (uint32_t way = 0; way < std::max(1u, model_.info().guidance_ways); ++way) {
    runner_.set_prompt(way, prompt, text);
  }
}

void PolicyService::take_noise(const WireRequest& request) {
  const std::span<float> noise = runner_.noise();
  if (!request.noise.empty()) {
    if (request.noise.size() != noise.size()) {
      throw Error(FRT_ERR_MISMATCH, "'noise' has " + std::to_string(request.noise.size()) +
                                        " values, this model takes " +
                                        std::to_string(noise.size()));
    }
    std::ranges::copy(request.noise, noise.begin());
  } else if (request.seed) {
    fill_normal(*request.seed, 0, noise);
  } else {
    fill_normal(options_.seed, draws_++, noise);
  }
}

std::string PolicyService::handle(const PolicyServer::Request& request) {
  const Clock::time_point start = Clock::now();
  try {
    if (options_.stale_ms > 0 && request.age_ms > options_.stale_ms) {
      ++stale_;
      throw Error(FRT_ERR_BAD_STATE,
                  "the observation waited " + std::to_string(request.age_ms) +
                      " ms, longer than stale_ms; its actions would be stale");
    }
    message_.parse(request.bytes);
    const WireRequest wire = read_request(message_);
    if (wire.previous || wire.delay || wire.execution_horizon) {
      throw Error(FRT_ERR_UNSUPPORTED, "model '" + model_.name() +
                                           "' takes no real-time chunking; leave 'rtc' out");
    }
    const uint32_t steps = wire.steps.value_or(options_.steps);
    if (steps != steps_) runner_.set_steps(steps);
    steps_ = steps;
    take_images(wire);
    if (model_.info().state_dim > 0) gather_state(wire, options_.keys, runner_.state());
    take_noise(wire);
    const double beta = wire.beta.value_or(options_.beta);
    if (beta != beta_) runner_.set_beta(beta);
    beta_ = beta;
    take_prompt(wire);

    const Clock::time_point inference = Clock::now();
    runner_.submit();
    const std::span<const float> actions = runner_.wait();
    const Clock::time_point done = Clock::now();
    latency_.add(milliseconds(inference, done));
    ++inferences_;
    return write_reply(actions, model_.info().action_dim, milliseconds(inference, done),
                       milliseconds(start, done), request.previous_total_ms);
  } catch (const Error&) {
    ++refused_;
    throw;
  }
}

std::string PolicyService::metrics() const {
  const auto line = [](const std::string& name, uint64_t value) {
    return "# TYPE frt_robot_" + name + " counter\nfrt_robot_" + name + " " +
           std::to_string(value) + "\n";
  };
  return line("inferences_total", inferences_) + line("request_refused_total", refused_) +
         line("stale_drop_total", stale_);
}

}  // namespace frt::host
