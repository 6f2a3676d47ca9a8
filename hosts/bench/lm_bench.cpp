// SPDX-License-Identifier: Apache-2.0
// Floor of a decode step of B sequences at context c: every weight byte once, each sequence's fixed
// state once, and c positions of rows per sequence, at the device's measured read bandwidth. Of a
// mixture's experts it counts as many as B tokens choose between them if all experts are as likely
// (expected_experts).
#include "bench/lm_bench.hpp"

#include <fmt/format.h>
#include <frt/ops/checksum.h>
#include <frt/ops/elementwise.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "bench/operator_shape.hpp"
#include "lm/step_runner.hpp"

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// Deterministic ids below `vocabulary`, the same for every run.
std::vector<int32_t> synthetic_tokens(uint64_t count, uint64_t seed, uint32_t vocabulary) {
  std::vector<int32_t> tokens(count);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int32_t& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<int32_t>((state >> 33) % vocabulary);
  }
  return tokens;
}

// Where the prefill step that starts at `position` ends: at a multiple of the chunk, or at `limit`.
uint64_t chunk_end(const LmModel& model, uint64_t position, uint64_t limit) {
  const uint64_t chunk = model.info().prefill_chunk;
  return std::min((position / chunk + 1) * chunk, limit);
}

std::vector<frt_sampling_params> greedy(uint32_t batch) {
  std::vector<frt_sampling_params> list(batch);
  for (auto& params : list) {
    params.top_p = 1;
    params.repetition_penalty = 1;
  }
  return list;
}

void end_if(const std::function<bool()>& cancelled) {
  if (cancelled()) throw Error(FRT_ERR_CANCELLED, "stopped on request");
}

// Feeds `tokens` to a slot from `position` on, cut at multiples of the chunk; returns the last
// ticket. Waits only for places in the ring.
uint64_t feed(StepRunner& runner, const LmModel& model, uint32_t slot, uint64_t position,
              const std::vector<int32_t>& tokens, const std::function<bool()>& cancelled) {
  uint64_t ticket = 0;
  for (uint64_t at = 0; at < tokens.size();) {
    const uint64_t end = chunk_end(model, position + at, position + tokens.size()) - position;
    ticket = runner.submit_prefill(slot, static_cast<int32_t>(position + at),
                                   std::span(tokens).subspan(at, end - at), false);
    end_if(cancelled);
    at = end;
  }
  return ticket;
}

}  // namespace

std::string bench_name(const BenchPoint& point) {
  std::string name =
      point.prefill > 0 ? fmt::format("pp{}", point.prefill) : fmt::format("tg{}", point.decode);
  if (point.depth > 0) name += fmt::format(" @ d{}", point.depth);
  if (point.batch > 1) name += fmt::format(" x {}", point.batch);
  return name;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

void LmBench::check_point(const BenchPoint& point) const {
  const frt_lm_info& info = model_.info();
  const auto refuse = [&](const std::string& text) {
    throw Error(FRT_ERR_OUT_OF_RANGE, bench_name(point) + ": " + text);
  };
  const uint64_t context = point.depth + point.prefill + point.decode + 1;
  if (context > info.max_context) {
    refuse(fmt::format(
        "needs a context of {} tokens, model '{}' has {}; raise its context (an option of its "
        "plugin: `frt-host plugins show`)",
        context, model_.name(), info.max_context));
  }
  if (point.batch > info.slots) {
    refuse(fmt::format("needs {} slots, model '{}' has {}; raise its option slots", point.batch,
                       model_.name(), info.slots));
  }
  if (point.batch > info.max_batch) {
    refuse(fmt::format("needs a batch of {}, model '{}' has {}; raise its option max_batch",
                       point.batch, model_.name(), info.max_batch));
  }
}

BenchResult LmBench::run(const BenchPoint& point, uint32_t repetitions, uint32_t warmup,
                         const std::function<bool()>& cancelled) const {
  check_point(point);
  const frt_lm_info& info = model_.info();
  StepRunner runner(model_);
  runner.set_sampling(greedy(point.batch));

  BenchResult result;
  result.point = point;
  for (uint32_t repetition = 0; repetition < warmup + repetitions; ++repetition) {
    const bool measured = repetition >= warmup;
    // Decode needs a pending token, so at least one token is fed.
    const uint64_t depth = std::max<uint64_t>(point.depth, point.prefill > 0 ? 0 : 1);
    for (uint32_t slot = 0; slot < point.batch; ++slot) {
      runner.clear(slot);
      if (depth > 0) {
        feed(runner, model_, slot, 0, synthetic_tokens(depth, slot + 1, info.vocabulary),
             cancelled);
      }
    }
    runner.stream().sync();

    if (point.prefill > 0) {
      const auto tokens = synthetic_tokens(point.prefill, 77, info.vocabulary);
      const auto start = Clock::now();
      runner.wait(feed(runner, model_, 0, depth, tokens, cancelled));
      if (measured) result.repetition_seconds.push_back(seconds_between(start, Clock::now()));
    } else {
      std::vector<StepRunner::Entry> entries;
      for (uint32_t slot = 0; slot < point.batch; ++slot) entries.push_back({slot, 0, -1});
      const auto submit = [&](uint64_t step) {
        for (auto& entry : entries) entry.position = static_cast<int32_t>(depth + step);
        const auto begin = Clock::now();
        const uint64_t ticket = runner.submit_decode(entries);
        if (measured) result.submit_seconds.push_back(seconds_between(begin, Clock::now()));
        return ticket;
      };
      const auto start = Clock::now();
      auto last = start;
      uint64_t ticket = submit(0);
      for (uint64_t step = 0; step < point.decode; ++step) {
        const uint64_t current = ticket;
        if (step + 1 < point.decode) ticket = submit(step + 1);
        runner.wait(current);
        const auto now = Clock::now();
        if (measured) result.step_seconds.push_back(seconds_between(last, now));
        last = now;
        end_if(cancelled);
      }
      if (measured) result.repetition_seconds.push_back(seconds_between(start, last));
    }
    end_if(cancelled);
  }
  result.flops = static_cast<double>(point.prefill) * static_cast<double>(info.prefill_flops_token);
  if (point.decode > 0) {
    const uint64_t middle = std::max<uint64_t>(point.depth, 1) + point.decode / 2;
    const double more =  // experts than one sequence reads
        expected_experts(info.experts, info.experts_per_token, point.batch) -
        info.experts_per_token;
    result.floor_bytes =
        info.decode_bytes_weights +
        static_cast<uint64_t>(more * static_cast<double>(info.decode_bytes_expert)) +
        point.batch * (info.decode_bytes_state + middle * info.decode_bytes_position);
    if (bandwidth_ > 0) result.floor_seconds = static_cast<double>(result.floor_bytes) / bandwidth_;
  }
  return result;
}

std::vector<OperatorTime> LmBench::profile(const BenchPoint& point, uint32_t steps,
                                           OperatorTimer& timer,
                                           const std::function<bool()>& cancelled) const {
  check_point(point);
  const frt_lm_info& info = model_.info();
  StepRunner runner(model_);
  runner.set_sampling(greedy(point.batch));
  const uint64_t depth = std::max<uint64_t>(point.depth, point.prefill > 0 ? 0 : 1);
  const auto fill_slots = [&] {
    for (uint32_t slot = 0; slot < point.batch; ++slot) {
      runner.clear(slot);
      if (depth > 0) {
        feed(runner, model_, slot, 0, synthetic_tokens(depth, slot + 1, info.vocabulary),
             cancelled);
      }
    }
    runner.stream().sync();
  };
  const auto finish_step = [&](uint64_t ticket) {
    timer.release();
    runner.wait(ticket);
    end_if(cancelled);
  };
  if (point.prefill > 0) {
    const auto tokens = synthetic_tokens(point.prefill, 77, info.vocabulary);
    for (const bool timed : {false, true}) {
      fill_slots();
      if (timed) timer.start();
      for (uint64_t at = 0; at < tokens.size();) {
        const uint64_t end = chunk_end(model_, depth + at, depth + tokens.size()) - depth;
        finish_step(runner.submit_prefill(0, static_cast<int32_t>(depth + at),
                                          std::span(tokens).subspan(at, end - at), false));
        at = end;
      }
    }
    return timer.finish();
  }
  fill_slots();
  std::vector<StepRunner::Entry> entries;
  for (uint32_t slot = 0; slot < point.batch; ++slot) entries.push_back({slot, 0, -1});
  for (uint64_t step = 0; step <= steps; ++step) {
    if (step == 1) {
      runner.stream().sync();
      timer.start();
    }
    for (auto& entry : entries) entry.position = static_cast<int32_t>(depth + step);
    finish_step(runner.submit_decode(entries));
  }
  return timer.finish();
}

double measure_read_bandwidth(const Context& context, uint64_t bytes) {
  constexpr int kPasses = 9;
  Kernel<frt_checksum_args> checksum;
  Kernel<frt_fill_uniform_args> fill;
  KernelSet()
      .add(checksum, "?" FRT_OP_CHECKSUM)
      .add(fill, "?" FRT_OP_FILL_UNIFORM)
      .resolve(context, KernelTypes());
  if (!checksum || bytes < sizeof(float)) return 0;
  const Stream stream = context.create_stream("bandwidth");
  const Buffer data = context.alloc(FRT_SPACE_DEVICE, bytes, "bandwidth.data");
  const Buffer sum = context.alloc(FRT_SPACE_DEVICE, sizeof(uint64_t), "bandwidth.sum");
  const Event start = context.create_event(FRT_EVENT_TIMING);
  const Event end = context.create_event(FRT_EVENT_TIMING);
  const Recorder recorder(stream);
  if (fill) {  // equal bytes may be read faster than real ones
    frt_fill_uniform_args args{};
    args.dtype = FRT_DTYPE_F32;
    args.low = -1;
    args.high = 1;
    args.seed = 1;
    args.count = bytes / sizeof(float);
    args.y = data.pointer<void>();
    fill(recorder, args);
  } else {
    recorder.fill(data, 0, bytes, 0x5A);
  }
  frt_checksum_args args{};
  args.x = data.pointer<void>();
  args.bytes = bytes / 8 * 8;
  args.y = sum.pointer<uint64_t>();
  std::vector<double> rates;
  for (int pass = 0; pass <= kPasses; ++pass) {
    start.record(stream);
    checksum(recorder, args);
    end.record(stream);
    end.sync();
    const double seconds = end.elapsed_since(start) / 1e3;
    if (pass > 0 && seconds > 0) rates.push_back(static_cast<double>(args.bytes) / seconds);
  }
  return rates.empty() ? 0 : quantile(rates, 0.5);
}

}  // namespace frt::host
