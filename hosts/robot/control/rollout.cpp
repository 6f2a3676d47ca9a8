// SPDX-License-Identifier: Apache-2.0
#include "robot/control/rollout.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace frt::host {
namespace {

constexpr std::size_t kRoomForChunks = 1024, kRoomForTicks = 4096;

}  // namespace

Rollout::Rollout(PolicyRunner& policy, CriticRunner* critic, Environment& environment,
                 EpisodeBoundary& boundary, RolloutOptions options)
    : policy_(policy),
      critic_(critic),
      environment_(environment),
      boundary_(boundary),
      options_(std::move(options)),
      queue_(options_.ticks, policy.policy().info().horizon,
             policy.policy().observation_info().action_dim),
      action_(queue_.width()) {
  require_action_width(environment, queue_.width(), policy.policy().name());
  policy_.set_steps(options_.steps);
  policy_.set_guidance(options_.guidance);
  boundary_.take();
}

EpisodeResult Rollout::run(uint64_t episode, EpisodeRecord& record) {
  EpisodeResult result;
  result.seed = options_.seed + episode;
  const int64_t before = monotonic_ns();
  boundary_.restore();
  policy_.stream().sync();
  result.reset_ms = ms_between(before, monotonic_ns());
  reset_ms_.add(result.reset_ms);
  environment_.reset(result.seed);
  if (critic_) critic_->set_instruction(environment_.instruction());
  queue_.reset();
  pending_ = {};
  chunk_ = -1;
  draws_ = 0;
  value_ = std::numeric_limits<float>::quiet_NaN();

  EpisodeMeta meta;
  meta.episode = episode;
  meta.seed = result.seed;
  meta.policy = policy_.policy().name();
  meta.critic = critic_ ? critic_->critic().name() : "";
  meta.prompt = environment_.instruction();
  meta.guidance = options_.guidance;
  meta.steps = options_.steps;
  meta.hz = options_.ticks.hz;
  meta.horizon = policy_.policy().info().horizon;
  meta.action_dim = queue_.width();
  meta.network_dim = policy_.policy().info().action_dim;
  record.begin(std::move(meta), options_.max_chunks ? options_.max_chunks : kRoomForChunks,
               kRoomForTicks);

  Ticker ticker(options_.ticks.hz, options_.ticks.spin_us);
  bool takeover = false;
  const char* stop = nullptr;
  submit(result, record);
  if (options_.realtime) {  // the first chunk is there before the first tick
    collect(record, result);
    stop = stop_reason(result);
    ticker.start();
  }
  while (!stop) {
    if (!pending_.active && queue_.wants_chunk() && !has_all_chunks(result)) {
      submit(result, record);
    }
    if (pending_.active && arrived(ticker.wake_ns())) {
      collect(record, result);
      if ((stop = stop_reason(result))) break;
    }
    const int64_t late = options_.realtime ? ticker.wait() : 0;
    if (!tick(record, result, late, takeover)) {
      stop = "end_key";
      break;
    }
    stop = stop_reason(result);
  }
  if (pending_.active) {  // nobody waits for it, but its buffers are in use
    policy_.stream().sync();
    if (critic_) critic_->stream().sync();
  }
  skipped_ += ticker.skipped();
  result.success = environment_.succeeded();
  result.stop_reason = stop;
  result.last_value = value_;
  record.end(result.stop_reason, result.success);
  return result;
}

bool Rollout::has_all_chunks(const EpisodeResult& result) const {
  return options_.max_chunks && result.chunks >= options_.max_chunks;
}

void Rollout::submit(const EpisodeResult& result, EpisodeRecord& record) {
  pending_.times.observed = monotonic_ns();
  const frt_observation& observation = environment_.observe();
  try {
    policy_.observe(observation);
  } catch (const Error& error) {
    if (!is_refusal(error.status()) || result.ticks == 0) throw;
    return queue_.note_refused();
  }
  fill_normal(result.seed, draws_++, policy_.noise());
  record.add_observation(observation, policy_.noise(), static_cast<int64_t>(record.ticks()));
  pending_.times.submitted = monotonic_ns();
  if (critic_) critic_->submit(environment_.images(), environment_.state());
  policy_.submit();
  pending_.active = true;
  pending_.ticks = 0;
}

bool Rollout::arrived(int64_t due_ns) const {
  if (!options_.realtime) return pending_.ticks >= options_.ticks.lead || queue_.left() == 0;
  // While there are actions, ask once a tick; at the end of the chunk, until the tick is due.
  while (!policy_.ready()) {
    if (queue_.left() > 0 || monotonic_ns() + kPollNs >= due_ns) return false;
    sleep_until_ns(monotonic_ns() + kPollNs);
  }
  return true;
}

void Rollout::collect(EpisodeRecord& record, EpisodeResult& result) {
  pending_.active = false;
  std::span<const double> chunk;
  try {
    chunk = policy_.wait();
  } catch (const Error& error) {
    if (critic_) critic_->wait();
    if (!is_refusal(error.status())) throw;
    record.drop_observation();
    return queue_.note_refused();
  }
  pending_.times.ready = monotonic_ns();
  if (critic_) value_ = critic_->wait();
  record.add_chunk(policy_.network_actions(), chunk, value_, pending_.times);
  ++result.chunks;
  inference_ms_.add(ms_between(pending_.times.submitted, pending_.times.ready));
  const double age_ms = options_.realtime
                            ? ms_between(pending_.times.observed, pending_.times.ready)
                            : pending_.ticks * 1e3 / options_.ticks.hz;
  if (queue_.accept(chunk, pending_.ticks, age_ms)) {
    chunk_ = static_cast<int32_t>(record.chunks()) - 1;
  }
}

// False: the operator ended the episode.  [hot]
bool Rollout::tick(EpisodeRecord& record, EpisodeResult& result, int64_t late, bool& takeover) {
  const int64_t start = monotonic_ns();
  const OperatorKeys pressed = keys ? keys() : OperatorKeys{};
  if (pressed.end) return false;
  if (pressed.takeover) takeover = !takeover;
  if (options_.record_frames) record.add_frame(environment_.observe());
  const bool forced = result.ticks >= options_.takeover_from && result.ticks < options_.takeover_to;
  bool intervened = (takeover || forced) && environment_.operator_action(action_);
  int32_t source = -1;
  if (intervened) {
    queue_.note_sent(action_);
    ++result.interventions;
  } else if (queue_.next(action_, has_all_chunks(result))) {
    source = chunk_;
  }
  environment_.apply(action_);
  const double reward = environment_.reward();
  result.reward += reward;
  record.add_tick(start, late, source, intervened, action_, reward);
  if (on_tick) on_tick(action_);
  ++result.ticks;
  ++pending_.ticks;
  if (options_.realtime) late_us_.add(static_cast<double>(late) * 1e-3);
  tick_us_.add(static_cast<double>(monotonic_ns() - start) * 1e-3);
  return true;
}

const char* Rollout::stop_reason(const EpisodeResult& result) const {
  if (environment_.succeeded()) return "success";
  if (value_ < options_.stop_value) return "value";
  if (environment_.over()) return "task_over";
  if (options_.time_limit > 0 &&
      static_cast<double>(result.ticks) >= options_.time_limit * options_.ticks.hz) {
    return "time_limit";
  }
  if (has_all_chunks(result) && queue_.left() == 0) return "chunk_limit";
  return nullptr;
}

}  // namespace frt::host
