// SPDX-License-Identifier: Apache-2.0
// What is compared is always two runs that make the same steps: the same cuts, the same number of
// entries per decode step, the sequence at the same place among them. What the other entries hold
// differs between the two on purpose.
#include "bench/capsule_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include "lm/step_runner.hpp"
#include "lm/token_journal.hpp"

namespace frt::host {
namespace {

using Tokens = std::vector<int32_t>;

// What a run showed.
struct Outcome {
  Tokens tokens{};
  std::vector<uint32_t> log_probabilities{};  // bits
  std::vector<uint32_t> logits{};             // bits, of the last step
  std::string state{};
};

// The first thing that differs; empty: nothing.
std::string difference(const Outcome& expected, const Outcome& found) {
  const auto first = [](const auto& a, const auto& b, const char* what) -> std::string {
    if (a.size() != b.size()) return fmt::format("{}: {} against {}", what, a.size(), b.size());
    const auto end = std::mismatch(a.begin(), a.end(), b.begin());
    if (end.first == a.end()) return {};
    return fmt::format("{}: first difference at {} of {}", what, end.first - a.begin(), a.size());
  };
  std::string text = first(expected.tokens, found.tokens, "tokens");
  if (text.empty()) text = first(expected.log_probabilities, found.log_probabilities, "logprobs");
  if (text.empty()) text = first(expected.logits, found.logits, "logits");
  if (text.empty()) text = first(expected.state, found.state, "state bytes");
  return text;
}

class Check {
 public:
  Check(const LmModel& model, const CapsuleCheckOptions& options, CapsuleCheckResult& result)
      : model_(model),
        info_(model.info()),
        options_(options),
        result_(result),
        runner_(model),
        capsules_(model.capsules()),
        chunk_(info_.prefill_chunk) {
    const uint64_t room = info_.max_context;
    most_ = options.most_tokens > 0 ? options.most_tokens : 3 * chunk_ + chunk_ / 2;
    most_ = std::min(most_, room > chunk_ + kTail ? room - chunk_ - kTail : 0);
    if (info_.slots < 2 || most_ < chunk_ + 1) {
      throw Error(
          FRT_ERR_OUT_OF_RANGE,
          fmt::format("checking capsules needs 2 slots or more and a context of {} tokens or "
                      "more; model '{}' has {} and {}: raise its slots and its "
                      "context, or lower its prefill chunk (options of its plugin: `frt-host "
                      "plugins show`)",
                      2 * chunk_ + kTail + 1, model.name(), info_.slots, room));
    }
  }

  void run(uint64_t number) {
    random_.seed(options_.seed * 0x9E3779B97F4A7C15u + number);
    label_ = fmt::format("case {} (seed {})", number, options_.seed);
    draw();
    const uint32_t first = slots_[0];
    const uint32_t second = draw_below(2) == 0 ? first : slots_[1];

    // The uninterrupted run, with capsules taken on its way.
    set_sampling();
    feed(first, 0, prefix_);
    const Capsule earlier =
        capsules_.snapshot(first, prefix_.size(), space_of(draw_below(2)), runner_.stream());
    decode_alone(first, prefix_.size(), warm_);
    const Capsule taken = keep(first);
    const std::string state = state_of(first, boundary());
    const Outcome expected = go_on(first, boundary(), suffix_, 0, neighbours_);

    // Another slot, or the same one, after something else was in it.
    dirty(second);
    taken.restore(second, runner_.stream());
    compare("state", {.state = state}, {.state = state_of(second, boundary())});
    compare("restored", expected, go_on(second, boundary(), suffix_, 0, neighbours_));

    if (warm_ == 0 && prefix_.size() % chunk_ == 0) {
      dirty(second);
      Tokens whole = prefix_;
      whole.insert(whole.end(), suffix_.begin(), suffix_.end());
      if (suffix_.empty()) {
        feed(second, 0, whole);
        compare("cold", expected, go_on(second, boundary(), {}, 0, neighbours_));
      } else {
        compare("cold", expected, go_on(second, 0, whole, 0, neighbours_));
      }
    }
    forks(taken);

    // The earlier boundary, after everything that came later.
    dirty(second);
    earlier.restore(second, runner_.stream());
    decode_alone(second, prefix_.size(), warm_);
    compare("back", {.state = state}, {.state = state_of(second, boundary())});
    compare("back", expected, go_on(second, boundary(), suffix_, 0, neighbours_));
    ++result_.cases;
  }

 private:
  static constexpr uint64_t kTail = 16;  // tokens that may follow prefix and suffix
  // Tokens that another sequence of the same steps has at most: it is there, and says nothing.
  static constexpr uint64_t kNeighbour = 64;

  uint64_t draw_below(uint64_t end) {
    return std::uniform_int_distribution<uint64_t>(0, end - 1)(random_);
  }
  Tokens draw_tokens(uint64_t count) {
    Tokens tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(draw_below(info_.vocabulary));
    return tokens;
  }
  static frt_space space_of(uint64_t choice) {
    return choice == 0 ? FRT_SPACE_DEVICE : FRT_SPACE_HOST_PINNED;
  }
  uint64_t boundary() const { return prefix_.size() + warm_; }

  void draw() {
    uint64_t length = 1 + draw_below(most_);
    const uint64_t kind = draw_below(4);  // a multiple of the chunk, one more, one less, anything
    if (kind < 3) {
      const uint64_t edge = (1 + draw_below(most_ / chunk_)) * chunk_;
      length = kind == 0 ? edge : kind == 1 ? edge + 1 : edge - 1;
    }
    length = std::clamp<uint64_t>(length, 1, most_);
    prefix_ = draw_tokens(length);
    warm_ = draw_below(2) == 0 ? 0 : 1 + draw_below(5);
    suffix_ = draw_tokens(draw_below(5) == 0 ? 0 : 1 + draw_below(chunk_));
    steps_ = 1 + draw_below(4);
    space_ = draw_below(options_.folder.empty() ? 2 : 3);
    slots_.resize(info_.slots);
    for (uint32_t i = 0; i < info_.slots; ++i) slots_[i] = i;
    std::shuffle(slots_.begin(), slots_.end(), random_);
    const uint64_t most_neighbours = std::min<uint64_t>({2, info_.slots - 2, info_.max_batch - 1});
    neighbours_ = draw_below(most_neighbours + 1);
    sampling_.assign(info_.max_batch, {});
    for (frt_sampling_params& params : sampling_) {
      params.top_p = 1;
      params.repetition_penalty = draw_below(2) == 0 ? 1.0f : 1.1f;
      params.temperature = draw_below(2) == 0 ? 0.0f : 1.0f;
      params.seed = draw_below(UINT64_MAX);
    }
    const auto count = [&](bool holds, const char* name) { result_.drawn[name] += holds; };
    count(prefix_.size() % chunk_ == 0, "chunk multiple");
    count(prefix_.size() % chunk_ == 1, "one after");
    count(prefix_.size() % chunk_ == chunk_ - 1, "one before");
    count(warm_ > 0, "after decode steps");
    count(suffix_.empty(), "without suffix");
    count(neighbours_ > 0, "with neighbours");
    count(space_ == 0, "device");
    count(space_ == 1, "pinned host");
    count(space_ == 2, "file");
  }

  void set_sampling() { runner_.set_sampling(sampling_); }

  // Prefill from `position` on; the last step's ticket.
  uint64_t feed(uint32_t slot, uint64_t position, const Tokens& tokens) {
    if (position == 0) runner_.clear(slot);
    uint64_t ticket = 0;
    const uint64_t limit = position + tokens.size();
    for (uint64_t at = position; at < limit;) {
      const uint64_t end = prefill_end(at, limit, chunk_);
      ticket = runner_.submit_prefill(slot, static_cast<int32_t>(at),
                                      std::span(tokens).subspan(at - position, end - at),
                                      at == position);
      at = end;
    }
    return ticket;
  }

  void decode_alone(uint32_t slot, uint64_t position, uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      const StepRunner::Entry entry{slot, static_cast<int32_t>(position + i), -1};
      runner_.submit_decode({&entry, 1});
    }
  }

  // Leaves something else in the slot.
  void dirty(uint32_t slot) {
    const uint64_t length = 1 + draw_below(most_);
    feed(slot, 0, draw_tokens(length));
    decode_alone(slot, length, draw_below(3));
  }

  std::string state_of(uint32_t slot, uint64_t boundary) {
    const Capsule copy =
        capsules_.snapshot(slot, boundary, FRT_SPACE_HOST_PINNED, runner_.stream());
    copy.sync();
    return copy.read();
  }

  // The capsule in the space of this case.
  Capsule keep(uint32_t slot) {
    Capsule taken = capsules_.snapshot(
        slot, boundary(), space_ == 0 ? FRT_SPACE_DEVICE : FRT_SPACE_HOST_PINNED, runner_.stream());
    if (space_ < 2) return taken;
    taken.sync();
    taken.save(options_.folder, "check", label_, FRT_CAPSULE_REPLACE);
    taken.reset();
    std::string metadata;
    Capsule loaded = capsules_.load(options_.folder, "check", FRT_SPACE_HOST_PINNED, &metadata);
    if (metadata != label_) result_.failures.push_back(label_ + ": the file's metadata differ");
    return loaded;
  }

  struct Entry {
    uint32_t slot;
    uint64_t position;
  };
  // Decode steps of several sequences, from their pending tokens; what entry `watched` gets is
  // added to `outcome`.
  void decode(std::vector<Entry> entries, std::size_t watched, Outcome& outcome) {
    std::vector<StepRunner::Entry> step(entries.size());
    uint64_t ticket = 0;
    for (uint64_t i = 0; i < steps_; ++i) {
      for (std::size_t e = 0; e < entries.size(); ++e) {
        step[e] = {entries[e].slot, static_cast<int32_t>(entries[e].position + i), -1};
      }
      ticket = runner_.submit_decode(step);
      note(ticket, watched, outcome);
    }
    outcome.logits = logits_of(watched);
  }
  // Of an entry of the last step; none where the model gives none.
  std::vector<uint32_t> logits_of(std::size_t entry) {
    if (!info_.logits) return {};
    const uint64_t bytes = info_.vocabulary * sizeof(uint32_t);
    return Buffer::retain(model_.context(), info_.logits)
        .download<uint32_t>(info_.vocabulary, runner_.stream(), entry * bytes);
  }
  void note(uint64_t ticket, std::size_t entry, Outcome& outcome) {
    outcome.tokens.push_back(runner_.wait(ticket)[entry]);
    outcome.log_probabilities.push_back(
        std::bit_cast<uint32_t>(runner_.log_probabilities(ticket)[entry]));
  }

  // Reads `suffix`, then decodes together with `neighbours` other sequences, as entry `place`.
  Outcome go_on(uint32_t slot, uint64_t position, const Tokens& suffix, std::size_t place,
                uint64_t neighbours) {
    Outcome outcome;
    std::vector<Entry> entries;
    for (const uint32_t other : slots_) {
      if (other == slot || entries.size() == neighbours) continue;
      const uint64_t length = 1 + draw_below(std::min(most_, kNeighbour));
      feed(other, 0, draw_tokens(length));
      entries.push_back({other, length});
    }
    if (!suffix.empty()) note(feed(slot, position, suffix), 0, outcome);
    const uint64_t end = position + suffix.size();
    entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(place), {slot, end});
    decode(entries, place, outcome);
    outcome.state = state_of(slot, end + steps_);
    return outcome;
  }

  // Two forks that read different things and then decode in the same steps.
  void forks(const Capsule& taken) {
    if (info_.max_batch < 2) return;
    const Tokens other = draw_tokens(1 + draw_below(chunk_));
    const uint32_t a = slots_[0], b = slots_[1];
    dirty(a);
    dirty(b);
    const uint32_t targets[] = {a, b};
    if (draw_below(2) == 0) {
      taken.fork(targets, runner_.stream());
      ++result_.drawn["forked from a capsule"];
    } else {
      taken.restore(a, runner_.stream());
      capsules_.fork_slot(a, boundary(), {&b, 1}, runner_.stream());
      ++result_.drawn["forked from a slot"];
    }
    Outcome of_a, of_b;
    if (!suffix_.empty()) note(feed(a, boundary(), suffix_), 0, of_a);
    note(feed(b, boundary(), other), 0, of_b);
    const std::vector<Entry> entries = {{a, boundary() + suffix_.size()},
                                        {b, boundary() + other.size()}};
    std::vector<StepRunner::Entry> step(2);
    for (uint64_t i = 0; i < steps_; ++i) {
      for (std::size_t e = 0; e < 2; ++e) {
        step[e] = {entries[e].slot, static_cast<int32_t>(entries[e].position + i), -1};
      }
      const uint64_t ticket = runner_.submit_decode(step);
      note(ticket, 0, of_a);
      note(ticket, 1, of_b);
    }
    of_a.logits = logits_of(0);
    of_b.logits = logits_of(1);
    of_a.state = state_of(a, entries[0].position + steps_);
    of_b.state = state_of(b, entries[1].position + steps_);

    dirty(b);
    taken.restore(b, runner_.stream());
    compare("forks", go_on(b, boundary(), suffix_, 0, 1), of_a);
    dirty(a);
    taken.restore(a, runner_.stream());
    compare("forks", go_on(a, boundary(), other, 1, 1), of_b);
  }

  void compare(const char* what, const Outcome& expected, const Outcome& found) {
    ++result_.compared[what];
    const std::string text = difference(expected, found);
    if (text.empty()) return;
    result_.failures.push_back(fmt::format(
        "{}: {}: {} (prefix {}, {} decode steps, suffix {}, {} neighbours, chunk {}, {})", label_,
        what, text, prefix_.size(), warm_, suffix_.size(), neighbours_, chunk_,
        space_ == 0   ? "device"
        : space_ == 1 ? "pinned host"
                      : "file"));
  }

  const LmModel& model_;
  const frt_lm_info& info_;
  const CapsuleCheckOptions& options_;
  CapsuleCheckResult& result_;
  StepRunner runner_;
  Capsules capsules_;
  uint64_t chunk_, most_ = 0;
  std::mt19937_64 random_;
  std::string label_;

  // This case.
  Tokens prefix_, suffix_;
  uint64_t warm_ = 0;   // decode steps before the boundary
  uint64_t steps_ = 0;  // after the suffix
  uint64_t space_ = 0;  // device, pinned host, file
  uint64_t neighbours_ = 0;
  std::vector<uint32_t> slots_;
  std::vector<frt_sampling_params> sampling_;
};

}  // namespace

CapsuleCheckResult check_capsules(const LmModel& model, const CapsuleCheckOptions& options,
                                  const std::function<bool(const CapsuleCheckResult&)>& step) {
  CapsuleCheckResult result;
  Check check(model, options, result);
  for (uint64_t i = 0; i < options.cases; ++i) {
    check.run(options.first + i);
    if (step && step(result)) break;
  }
  return result;
}

}  // namespace frt::host
