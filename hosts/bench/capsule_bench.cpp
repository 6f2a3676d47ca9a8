// SPDX-License-Identifier: Apache-2.0
// Device times are those between two events around the verb, on a stream that is idle but for it;
// a verb of a few microseconds is therefore timed with its launch. Times to the first token are the
// host's: from the first call until the token is there.
//
// Floors: a copy on the device reads and writes each byte once, at the rate a large copy reaches; a
// copy over the link, at the link's; the first token behind a prefix reads every weight once.
#include "bench/capsule_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "bench/lm_bench.hpp"
#include "lm/capsules/content.hpp"
#include "lm/capsules/index.hpp"
#include "lm/step_runner.hpp"
#include "lm/token_journal.hpp"

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Deterministic ids below `vocabulary`.
std::vector<int32_t> synthetic_tokens(uint64_t count, uint64_t seed, uint32_t vocabulary) {
  std::vector<int32_t> tokens(count);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int32_t& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<int32_t>((state >> 33) % vocabulary);
  }
  return tokens;
}

class Bench {
 public:
  Bench(const LmModel& model, const CapsuleBenchOptions& options, CapsuleBenchResult& result,
        const std::function<bool(const std::string&)>& cancelled)
      : model_(model),
        options_(options),
        result_(result),
        cancelled_(cancelled),
        runner_(model),
        capsules_(model.capsules()),
        start_(model.context().create_event(FRT_EVENT_TIMING)),
        end_(model.context().create_event(FRT_EVENT_TIMING)) {
    frt_sampling_params greedy{};
    greedy.top_p = greedy.repetition_penalty = 1;
    runner_.set_sampling(std::vector(model.info().max_batch, greedy));
  }

  void verbs(uint64_t tokens) {
    if (!fits(tokens)) return;
    say(fmt::format("verbs at {}", tokens));
    feed(0, 0, synthetic_tokens(tokens, 1, model_.info().vocabulary));
    const CapsuleRates& rates = result_.rates;
    std::optional<Capsule> device, host;
    CapsuleTiming& snapshot = add("snapshot, device", tokens, "device");
    for (uint32_t i = 0; i <= options_.repetitions; ++i) {
      device.reset();
      timed(snapshot, i, [&] {
        device.emplace(capsules_.snapshot(0, tokens, FRT_SPACE_DEVICE, runner_.stream()));
      });
    }
    snapshot.bytes = device->info().held_bytes;
    snapshot.floor_seconds = floor(2 * snapshot.bytes, rates.copy);
    const uint64_t device_bytes = snapshot.bytes;

    const uint32_t target = model_.info().slots > 1 ? 1 : 0;
    CapsuleTiming& restore = add("restore, device", tokens, "device");
    restore.bytes = device_bytes;
    restore.floor_seconds = floor(2 * device_bytes, rates.copy);
    for (uint32_t i = 0; i <= options_.repetitions; ++i) {
      timed(restore, i, [&] { device->restore(target, runner_.stream()); });
    }
    if (target != 0) {
      CapsuleTiming& fork = add("fork to a slot", tokens, "device");
      fork.bytes = device_bytes;
      fork.floor_seconds = floor(2 * device_bytes, rates.copy);
      for (uint32_t i = 0; i <= options_.repetitions; ++i) {
        timed(fork, i, [&] { capsules_.fork_slot(0, tokens, {&target, 1}, runner_.stream()); });
      }
    } else {
      skip("fork", "the model has one slot; raise its option slots");
    }

    CapsuleTiming& save_host = add("snapshot, pinned host", tokens, "device");
    for (uint32_t i = 0; i <= options_.repetitions; ++i) {
      host.reset();
      timed(save_host, i, [&] {
        host.emplace(capsules_.snapshot(0, tokens, FRT_SPACE_HOST_PINNED, runner_.stream()));
      });
    }
    save_host.bytes = host->bytes();
    save_host.floor_seconds = floor(host->bytes(), rates.link);
    CapsuleTiming& from_host = add("restore, pinned host", tokens, "device");
    from_host.bytes = host->bytes();
    from_host.floor_seconds = floor(host->bytes(), rates.link);
    for (uint32_t i = 0; i <= options_.repetitions; ++i) {
      timed(from_host, i, [&] { host->restore(target, runner_.stream()); });
    }
    runner_.stream().sync();

    if (!options_.folder.empty()) files(tokens, *host);
  }

  // Time to the first token of prefix + suffix: cold, and from a capsule of the prefix.
  void first_token(uint64_t tokens, uint32_t repetitions, std::vector<double>& cold,
                   std::vector<double>& restored) {
    const auto prefix = synthetic_tokens(tokens, 2, model_.info().vocabulary);
    const auto suffix = synthetic_tokens(options_.suffix, 3, model_.info().vocabulary);
    // At a multiple of the chunk the cold run is cut there anyway, and its state is kept on the
    // way.
    const bool edge = tokens % model_.info().prefill_chunk == 0;
    auto whole = prefix;
    whole.insert(whole.end(), suffix.begin(), suffix.end());
    Capsule capsule;
    for (uint32_t i = 0; i < repetitions; ++i) {
      capsule.reset();
      runner_.stream().sync();
      const auto start = Clock::now();
      if (edge) {
        feed(0, 0, prefix);
        capsule = capsules_.snapshot(0, tokens, FRT_SPACE_DEVICE, runner_.stream());
        runner_.wait(feed(0, tokens, suffix));
      } else {
        runner_.wait(feed(0, 0, whole));
      }
      cold.push_back(seconds_since(start));
    }
    if (!edge) {
      feed(0, 0, prefix);
      capsule = capsules_.snapshot(0, tokens, FRT_SPACE_DEVICE, runner_.stream());
    }
    for (uint32_t i = 0; i <= options_.repetitions; ++i) {
      runner_.clear(0);
      runner_.stream().sync();
      const auto start = Clock::now();
      capsule.restore(0, runner_.stream());
      runner_.wait(feed(0, tokens, suffix));
      if (i > 0) restored.push_back(seconds_since(start));
    }
  }

  void first_tokens(uint64_t tokens) {
    if (!fits(tokens + options_.suffix)) return;
    say(fmt::format("first token behind {}", tokens));
    std::vector<double> cold, restored;
    first_token(tokens, 2, cold, restored);
    const double weights = floor(model_.info().decode_bytes_weights, result_.rates.read);
    CapsuleTiming& with =
        add(fmt::format("first token, capsule + {}", options_.suffix), tokens, "host");
    with.seconds = restored;
    with.floor_seconds = weights;
    add(fmt::format("first token, cold + {}", options_.suffix), tokens, "host").seconds = cold;
  }

  void sweep(uint64_t tokens) {
    if (!fits(tokens + options_.suffix)) return;
    say(fmt::format("sweep at {}", tokens));
    CapsuleSweepPoint point{tokens, {}, {}};
    first_token(tokens, 1, point.cold_seconds, point.capsule_seconds);
    result_.sweep.push_back(std::move(point));
  }

  // An index over many files: made from the files, and read from the database. The capsules are of
  // an arena of their own, with next to no state, and remember `tokens` tokens each.
  void index(const frt_state_v1& states, uint64_t tokens) {
    say(fmt::format("index of {}", options_.index));
    const frt_region region{"state", FRT_REGION_FIXED, FRT_DTYPE_U8, 256, 1, 0};
    frt_capsule_layout layout{};
    layout.struct_size = sizeof(layout);
    layout.region_count = 1;
    layout.regions = &region;
    const State state(&states, model_.context(), layout, 1, "index");
    const Capsules verbs(&capsules_.table(), model_.context(), state.handle());
    const frt_fingerprint_field field{"bench", "index"};
    verbs.bind({&field, 1});
    verbs.fingerprint();
    const std::filesystem::path folder = options_.folder / "index";
    const Capsule capsule = verbs.snapshot(0, 0, FRT_SPACE_HOST_PINNED, runner_.stream());
    capsule.sync();
    for (uint64_t i = 0; i < options_.index; ++i) {
      CapsuleContent content;
      content.name = fmt::format("capsule-{}", i);
      content.kind = CapsuleKind::kTurn;
      content.model = model_.name();
      content.chunk = model_.info().prefill_chunk;
      content.tokens = synthetic_tokens(tokens, i, model_.info().vocabulary);
      content.path = {{false, 0, tokens}};
      content.digest = digest_of("", content.tokens);
      content.sampling.top_p = 1;
      capsule.save(folder, content.name, content_to_text(content));
      if (i % 64 == 0) say(fmt::format("index: {} of {} written", i, options_.index));
    }
    const auto open = [&](const char* name) {
      CapsuleTiming& timing =
          add(fmt::format("index of {}, {}", options_.index, name), tokens, "host");
      const auto start = Clock::now();
      const CapsuleIndex index(capsules_.table(), folder);
      const std::size_t rows = index.rows().size();
      timing.seconds.push_back(seconds_since(start));
      if (rows != options_.index) {
        throw Error(FRT_ERR_INTERNAL, fmt::format("the index has {} rows", rows));
      }
    };
    open("from the files");
    open("as it was left");
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  void skip(const std::string& what, const std::string& why) {
    result_.skipped.push_back(what + ": " + why);
  }

 private:
  static double floor(uint64_t bytes, double rate) {
    return rate > 0 ? static_cast<double>(bytes) / rate : 0;
  }
  void say(const std::string& now) const {
    if (cancelled_(now)) throw Error(FRT_ERR_CANCELLED, "stopped on request");
  }
  bool fits(uint64_t tokens) {
    if (tokens <= model_.info().max_context) return true;
    skip(fmt::format("{} tokens", tokens),
         fmt::format("the context has room for {}; raise the context of the model (an option of "
                     "its plugin: `frt-host plugins show`)",
                     model_.info().max_context));
    return false;
  }
  CapsuleTiming& add(const std::string& name, uint64_t tokens, const char* clock) {
    // A reference is used until the next row is added but one: there is room for all.
    result_.timings.reserve(256);
    return result_.timings.emplace_back(CapsuleTiming{name, tokens, clock, {}, {}, 0, 0});
  }

  // Repetition 0 warms up: the store takes its memory then.
  template <class Verb>
  void timed(CapsuleTiming& timing, uint32_t repetition, const Verb& verb) {
    runner_.stream().sync();
    start_.record(runner_.stream().handle());
    const auto begin = Clock::now();
    verb();
    const double submission = seconds_since(begin);
    end_.record(runner_.stream().handle());
    end_.sync();
    if (repetition == 0) return;
    timing.submission_seconds.push_back(submission);
    timing.seconds.push_back(end_.elapsed_since(start_) / 1e3);
  }

  uint64_t feed(uint32_t slot, uint64_t position, const std::vector<int32_t>& tokens) {
    if (position == 0) runner_.clear(slot);
    const uint64_t limit = position + tokens.size();
    uint64_t ticket = 0;
    for (uint64_t at = position; at < limit;) {
      const uint64_t end = prefill_end(at, limit, model_.info().prefill_chunk);
      ticket = runner_.submit_prefill(slot, static_cast<int32_t>(at),
                                      std::span(tokens).subspan(at - position, end - at),
                                      at == position);
      at = end;
    }
    return ticket;
  }

  void files(uint64_t tokens, const Capsule& host) {
    const std::filesystem::path folder = options_.folder / "files";
    const uint32_t repetitions = std::min<uint32_t>(options_.repetitions, 3);
    CapsuleTiming& save = add("save, file", tokens, "host");
    save.bytes = host.bytes();
    host.sync();
    for (uint32_t i = 0; i <= repetitions; ++i) {
      const auto start = Clock::now();
      host.save(folder, "bench", "", FRT_CAPSULE_REPLACE);
      if (i > 0) save.seconds.push_back(seconds_since(start));
    }
    CapsuleTiming& load = add("load, file", tokens, "host");
    load.bytes = host.bytes();
    for (uint32_t i = 0; i <= repetitions; ++i) {
      const auto start = Clock::now();
      const Capsule loaded = capsules_.load(folder, "bench", FRT_SPACE_HOST_PINNED);
      if (i > 0) load.seconds.push_back(seconds_since(start));
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  const LmModel& model_;
  const CapsuleBenchOptions& options_;
  CapsuleBenchResult& result_;
  const std::function<bool(const std::string&)>& cancelled_;
  StepRunner runner_;
  Capsules capsules_;
  Event start_, end_;
};

}  // namespace

CapsuleRates measure_capsule_rates(const Context& context, uint64_t bytes) {
  constexpr int kPasses = 7;
  CapsuleRates rates;
  rates.read = measure_read_bandwidth(context, bytes);
  const Stream stream = context.create_stream("rates");
  const Event start = context.create_event(FRT_EVENT_TIMING);
  const Event end = context.create_event(FRT_EVENT_TIMING);
  const Recorder recorder(stream);
  const auto measure = [&](const Buffer& target, const Buffer& source, double bytes_moved) {
    std::vector<double> all;
    for (int pass = 0; pass <= kPasses; ++pass) {
      start.record(stream);
      recorder.copy(target, 0, source, 0, source.bytes());
      end.record(stream);
      end.sync();
      const double seconds = end.elapsed_since(start) / 1e3;
      if (pass > 0 && seconds > 0) all.push_back(bytes_moved / seconds);
    }
    return all.empty() ? 0 : quantile(all, 0.5);
  };
  const uint64_t half = std::max<uint64_t>(bytes / 2, 1);
  const uint64_t linked = std::min<uint64_t>(half, uint64_t{1} << 28);
  const Buffer a = context.alloc(FRT_SPACE_DEVICE, half, "rates.a");
  const Buffer b = context.alloc(FRT_SPACE_DEVICE, half, "rates.b");
  const Buffer host = context.alloc(FRT_SPACE_HOST_PINNED, linked, "rates.host");
  rates.copy = measure(b, a, 2 * static_cast<double>(half));
  rates.link = measure(a, host, static_cast<double>(linked));
  return rates;
}

CapsuleBenchResult bench_capsules(const LmModel& model, const CapsuleBenchOptions& options,
                                  const frt_state_v1& states,
                                  const std::function<bool(const std::string&)>& cancelled) {
  CapsuleBenchResult result;
  const frt_context_info device = model.context().info();
  const uint64_t most = std::min<uint64_t>(device.memory_total / 16, device.memory_free / 4);
  result.rates = measure_capsule_rates(model.context(),
                                       std::min<uint64_t>(uint64_t{1} << 31, most) / 256 * 256);
  if (!options.folder.empty()) model.capsules().fingerprint();
  Bench bench(model, options, result, cancelled);
  for (const uint64_t tokens : options.lengths) bench.verbs(tokens);
  for (const uint64_t tokens : options.lengths) bench.first_tokens(tokens);
  for (const uint64_t tokens : options.sweep) bench.sweep(tokens);
  if (options.folder.empty()) {
    bench.skip("files", "no folder was given");
  } else if (options.index > 0) {
    bench.index(states, 8192);
  }
  return result;
}

}  // namespace frt::host
