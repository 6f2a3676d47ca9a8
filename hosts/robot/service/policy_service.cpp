// SPDX-License-Identifier: Apache-2.0
#include "robot/service/policy_service.hpp"

#include <algorithm>
#include <chrono>
#include <frt/io/json.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "robot/policy_inputs.hpp"
#include "robot/warm_up.hpp"

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;

// No piece of a vocabulary in use spells more bytes: a longer prompt is too long before anything is
// done with it. Short ones are left to the model.
constexpr uint64_t kTokenBytes = 64;
constexpr uint64_t kAnyPrompt = 1024;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

PolicyService::PolicyService(const PolicyModel& model, ServiceOptions options)
    : model_(model), options_(std::move(options)), runner_(model) {}

void PolicyService::check_options() {
  runner_.set_guidance(options_.guidance);
  frt_policy_shape shape{};
  shape.struct_size = sizeof(shape);
  shape.views = model_.info().views;
  shape.prompt = model_.info().max_prompt;
  shape.steps = options_.steps;
  shape.samples = 1;
  shape.branches = options_.guidance.none() ? 1 : model_.info().guidance_branches;
  model_.infer_key(shape);
}

uint32_t PolicyService::warm_up(const frt_state_v1* states, const frt_capsules_v1* capsules,
                                const std::function<bool()>& cancelled) {
  EpisodeBoundary boundary(states, capsules, runner_);
  return host::warm_up(runner_, boundary, cancelled);
}

std::string PolicyService::metadata() const {
  // What the model says of itself, and what any client can use.
  const char* text = model_.observation_info().metadata;
  io::Json json = io::Json::object();
  if (text) json = io::parse_json(text, model_.sender() + ": metadata");
  if (!json.is_object()) json = io::Json::object();
  json["model"] = model_.name();
  json["action_horizon"] = model_.info().horizon;
  json["action_dim"] = model_.observation_info().action_dim;
  json["inputs"] = inputs_json(model_);
  const std::vector<uint8_t> bytes = io::Json::to_msgpack(json);
  return {bytes.begin(), bytes.end()};
}

void PolicyService::observe(const WireRequest& request) {
  const std::vector<frt_array> arrays = to_arrays(request, aligned_);
  frt_observation observation{};
  observation.struct_size = sizeof(observation);
  observation.array_count = static_cast<uint32_t>(arrays.size());
  observation.arrays = arrays.data();
  const std::string& prompt = request.prompt ? *request.prompt : options_.default_prompt;
  const uint64_t most = std::max(kAnyPrompt, kTokenBytes * model_.info().max_prompt);
  if (prompt.size() > most) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "'prompt' has " + std::to_string(prompt.size()) + " bytes, at most " +
                    std::to_string(most) + " can fit into the " +
                    std::to_string(model_.info().max_prompt) + " tokens that the model reads");
  }
  if (request.prompt_ids.empty()) {
    // An empty default is none; an empty instruction of a request is one.
    if (request.prompt || !prompt.empty()) observation.prompt = prompt.c_str();
  } else {
    observation.prompt_tokens = request.prompt_ids.data();
    observation.prompt_token_count = static_cast<uint32_t>(request.prompt_ids.size());
  }
  std::string options;
  if (request.positive) {
    options = nlohmann::json({{"positive", *request.positive}}).dump();
    observation.options = options.c_str();
  }
  runner_.observe(observation);
  aligned_.clear();
}

void PolicyService::take_noise(const WireRequest& request) {
  runner_.keep_noise(request.has_noise);
  if (request.has_noise) return;
  if (request.seed) {
    fill_normal(*request.seed, 0, runner_.noise());
  } else {
    fill_normal(options_.seed, draws_++, runner_.noise());
  }
}

void PolicyService::continue_chunk(const WireRequest& request) {
  const bool continues = request.continuation && request.continuation->previous;
  if (!request.continuation && !continues_) return;
  const frt_policy_info& info = model_.info();
  if (!info.has_continuation || !model_.role().set_continuation) {
    throw Error(FRT_ERR_UNSUPPORTED,
                model_.sender() + " takes no real-time chunking; leave 'rtc' out");
  }
  frt_policy_previous previous{};
  previous.struct_size = sizeof(previous);
  std::vector<float> rows;
  if (continues) {
    const WireContinuation& asked = *request.continuation;
    const WireArray& given = *asked.previous;
    if (given.rank != 2 || given.shape[0] > info.horizon || given.shape[1] != info.action_dim) {
      throw Error(FRT_ERR_FORMAT,
                  "'rtc/prev' is no array (rows, actions) of at most " +
                      std::to_string(info.horizon) + " x " + std::to_string(info.action_dim) +
                      ", all actions of a row: what is left of the last reply's 'network_actions', "
                      "not of its 'actions'");
    }
    rows.resize(given.shape[0] * info.action_dim);
    for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(given.value(i));
    previous.mode = asked.mode;
    previous.schedule = asked.schedule;
    previous.delay = asked.delay;
    previous.execution_horizon = asked.execution_horizon ? asked.execution_horizon : info.horizon;
    previous.guidance_cap = static_cast<float>(asked.guidance_cap);
    previous.rows = static_cast<uint32_t>(given.shape[0]);
    previous.actions = rows.data();
  }
  frt_error error{};
  check(
      model_.role().set_continuation(model_.handle(), &previous, runner_.stream().handle(), &error),
      error, model_.sender());
  continues_ = continues;
}

PolicyServer::Reply PolicyService::handle(const PolicyServer::Request& request) {
  const Clock::time_point start = Clock::now();
  try {
    if (options_.stale_ms > 0 && request.age_ms > options_.stale_ms) {
      ++stale_;
      throw Error(FRT_ERR_BAD_STATE, "the observation waited " + std::to_string(request.age_ms) +
                                         " ms, longer than stale_ms; its actions would be stale");
    }
    message_.parse(request.bytes);
    const WireRequest wire = read_request(message_);
    continue_chunk(wire);
    runner_.set_steps(wire.steps.value_or(options_.steps));
    runner_.set_guidance(wire.guidance.value_or(options_.guidance));
    take_noise(wire);
    observe(wire);

    const Clock::time_point inference = Clock::now();
    runner_.submit();
    const std::span<const double> actions = runner_.wait();
    const Clock::time_point done = Clock::now();
    latency_.add(milliseconds(inference, done));
    ++inferences_;
    const double infer_ms = milliseconds(inference, done);
    return {write_reply({.actions = actions,
                         .width = model_.observation_info().action_dim,
                         .network_actions = wire.continuation ? runner_.network_actions()
                                                              : std::span<const float>(),
                         .infer_ms = infer_ms,
                         .server_ms = milliseconds(start, done),
                         .previous_total_ms = request.previous_total_ms}),
            infer_ms};
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
