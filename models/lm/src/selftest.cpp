// SPDX-License-Identifier: Apache-2.0
// A case is run three times: traced (all tensors at the end of the prompt, drafts, the greedy
// steps, the end state), in pieces and prefixes, and speculating. Golden shapes follow the
// reference's layout: fixed regions as the architecture says (golden_regions()), keys and
// values (kv head, position, dim); the arena's are brought to that.
#include <frt/lm/selftest.hpp>

#include <algorithm>
#include <frt/error.hpp>
#include <frt/models/json.hpp>
#include <functional>
#include <numeric>
#include <set>

#include <frt/lm/generation_defaults.hpp>
#include <frt/lm/selftest_goldens.hpp>
#include <frt/lm/selftest_routing.hpp>
#include <frt/lm/selftest_runner.hpp>
#include <frt/lm/tables.hpp>

namespace frt::lm {
namespace {

class CaseTest {
 public:
  CaseTest(const Model& model, const GoldenCase& golden, Checks& checks)
      : model_(model),
        config_(model.config()),
        golden_(golden),
        checks_(checks),
        runner_(model),
        prompt_(golden.prompt()) {}

  void run() {
    if (!fits()) return;
    traced_prompt();
    if (find("mtp.draft")) drafts();
    if (find("step_logits") || find("greedy")) steps();
    pieces();
    if (find("spec_accepted")) speculation();
    leftovers();
  }

 private:
  const Golden* find(const std::string& tensor) const {
    looked_at_.insert(tensor);
    return golden_.find(tensor);
  }
  std::string name(const std::string& tensor) const { return golden_.name + "." + tensor; }

  void require_token(std::int32_t id, const char* tensor) const {
    if (id >= 0 && id < config_.vocabulary) return;
    throw Error(FRT_ERR_MISMATCH, "golden tensor " + name(tensor) + " holds token " +
                                      std::to_string(id) + ", the model has " +
                                      std::to_string(config_.vocabulary) +
                                      " tokens; these goldens belong to another model");
  }

  // Drafts per cycle. More than were ever accepted change nothing: the next one was rejected.
  std::int32_t speculation_width() const {
    const Golden* accepted = find("spec_accepted");
    if (!accepted || accepted->ids.empty()) return 1;
    const std::int32_t most = *std::max_element(accepted->ids.begin(), accepted->ids.end());
    const Golden* greedy = find("greedy");
    if (!greedy || most > static_cast<std::int64_t>(greedy->count())) {
      throw Error(FRT_ERR_FORMAT, "golden tensor " + name("spec_accepted") + " in " + golden_.file +
                                      " holds " + std::to_string(most) +
                                      " accepted drafts, more than there are greedy ids");
    }
    return std::max(1, most);
  }

  bool fits() {
    for (const std::int32_t id : prompt_) {
      require_token(id, "ids");
    }
    const Golden* greedy = find("greedy");
    if (greedy) {
      for (const std::int32_t id : greedy->ids) require_token(id, "greedy");
    }
    const std::size_t positions = prompt_.size() + (greedy ? greedy->count() : 0) +
                                  static_cast<std::size_t>(speculation_width()) + 1;
    if (positions <= static_cast<std::size_t>(model_.parts().max_context)) return true;
    checks_.skip(golden_.name,
                 "needs " + std::to_string(positions) + " positions; raise max_context");
    return false;
  }

  std::vector<std::int32_t> positions(const char* tensor, std::int32_t limit) const {
    const Golden* golden = find(tensor);
    if (!golden) return {};
    for (const std::int32_t row : golden->ids) {
      if (row < 0 || row >= limit) {
        throw Error(FRT_ERR_FORMAT, "golden tensor " + name(tensor) + " holds position " +
                                        std::to_string(row) + ", expected 0 to " +
                                        std::to_string(limit - 1));
      }
    }
    return golden->ids;
  }

  void compare(const std::string& tensor, Quantity quantity, std::span<const float> computed,
               std::span<const Routing> routing = {}) {
    const Golden* golden = find(tensor);
    if (!golden) return;
    checks_.values(name(tensor), quantity, computed, golden->values, width_of(tensor, *golden),
                   routing);
  }

  std::int64_t width_of(const std::string& tensor, const Golden& golden) const {
    if (!golden.shape.empty() && golden.shape.back() > 0) return golden.shape.back();
    throw Error(FRT_ERR_FORMAT, "golden tensor " + name(tensor) + " in " + golden_.file +
                                    " has no rows of values, expected at least one axis and no "
                                    "empty one");
  }

  void traced_prompt() {
    const auto length = static_cast<std::int32_t>(prompt_.size());
    TraceRequest request;
    request.rows = positions("rows", length);
    request.logit_rows = positions("logit_rows", length);
    if (!find("logit_rows") && find("logits")) {
      request.logit_rows.resize(prompt_.size());
      std::iota(request.logit_rows.begin(), request.logit_rows.end(), 0);
    }
    request.mtp_rows = positions("mtp.rows", length - 1);
    runner_.clear();
    Trace trace;
    last_ = runner_.prefill_traced(prompt_, request, trace);

    if (const Golden* ids = find("router_ids")) {
      routing_ = GoldenRouting({request.rows, ids->ids},
                               static_cast<std::size_t>(width_of("router_ids", *ids)),
                               model_.architecture().routing_reach());
      checks_.experts(name("router_ids"), trace.router_ids, ids->ids, width_of("router_ids", *ids));
      compare_router_weights(trace, *ids);
    }
    const RoutedRows run = {request.rows, trace.router_ids};
    compare("logits", Quantity::kLogits, trace.logits, routing_.at(request.logit_rows, run));
    std::vector<std::int32_t> all(prompt_.size());
    std::iota(all.begin(), all.end(), 0);
    compare("hidden", Quantity::kRows, trace.hidden, routing_.at(all, run));
    compare("residual", Quantity::kRows, trace.rows["residual"], routing_.after_layers(run));
    compare("mixer", Quantity::kRows, trace.rows["mixer"], routing_.before_layers(run));
    compare("ffn", Quantity::kRows, trace.rows["ffn"], routing_.after_layers(run));
    states("");
    if (find("mtp.rows") && !model_.has_draft()) {
      checks_.skip(name("mtp"), "the model has no draft head loaded");
    } else if (find("mtp.rows")) {
      compare("mtp.hidden", Quantity::kRows, trace.mtp_hidden);
      compare("mtp.logits", Quantity::kLogits, trace.mtp_logits);
      cache_rows("mtp.k", "mtp.keys", request.mtp_rows);
      cache_rows("mtp.v", "mtp.values", request.mtp_rows);
    }
  }

  // Of the rows whose experts agree, in the same order.
  void compare_router_weights(const Trace& trace, const Golden& ids) {
    const Golden* golden = find("router_weights");
    if (!golden) return;
    const std::vector<float>& weights = trace.rows.at("router_weights");
    const auto width = static_cast<std::size_t>(width_of("router_ids", ids));
    std::vector<float> computed, expected;
    for (std::size_t r = 0; r + width <= std::min(weights.size(), golden->values.size());
         r += width) {
      if (!std::equal(ids.ids.begin() + static_cast<std::ptrdiff_t>(r),
                      ids.ids.begin() + static_cast<std::ptrdiff_t>(r + width),
                      trace.router_ids.begin() + static_cast<std::ptrdiff_t>(r))) {
        continue;
      }
      computed.insert(computed.end(), weights.begin() + static_cast<std::ptrdiff_t>(r),
                      weights.begin() + static_cast<std::ptrdiff_t>(r + width));
      expected.insert(expected.end(), golden->values.begin() + static_cast<std::ptrdiff_t>(r),
                      golden->values.begin() + static_cast<std::ptrdiff_t>(r + width));
    }
    checks_.values(name("router_weights"), Quantity::kRows, computed, expected,
                   static_cast<std::int64_t>(width));
  }

  // Fixed regions, at the end of the prompt or, with "end.", of the steps.
  void states(const std::string& prefix) {
    for (const GoldenRegion& golden : model_.architecture().golden_regions()) {
      const std::string tensor = prefix + golden.tensor;
      if (!find(tensor)) continue;
      std::vector<float> values = runner_.region(golden.region);
      if (golden.rows > 0) values = transposed(values, golden.rows, golden.columns);
      compare(tensor, Quantity::kState, values);
    }
  }

  static std::vector<float> transposed(const std::vector<float>& values, std::int64_t rows,
                                       std::int64_t columns) {
    std::vector<float> out(values.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        out[static_cast<std::size_t>(c * rows + r)] =
            values[static_cast<std::size_t>(r * columns + c)];
      }
    }
    return out;
  }

  // Golden (kv head, row, dim) against the arena's (row, kv head, dim) at the given rows.
  void cache_rows(const std::string& tensor, const std::string& region,
                  const std::vector<std::int32_t>& rows) {
    const Golden* golden = find(tensor);
    if (!golden) return;
    const std::int32_t count = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end()) + 1;
    const std::vector<float> cache = runner_.region(region, count);
    std::vector<float> computed;
    for (std::int64_t head = 0; head < config_.kv_heads; ++head) {
      for (const std::int32_t row : rows) {
        const auto at = cache.begin() + (row * config_.kv_heads + head) * config_.head_dim;
        computed.insert(computed.end(), at, at + config_.head_dim);
      }
    }
    compare(tensor, Quantity::kRows, computed);
  }

  void drafts() {
    const Golden& golden = *find("mtp.draft");
    if (!model_.has_draft()) {
      return checks_.skip(name("mtp.draft"), "the model has no draft head loaded");
    }
    std::vector<std::int32_t> tokens;
    std::vector<float> logits;
    std::int32_t token = find("greedy") ? find("greedy")->ids.at(0) : last_.token;
    for (std::size_t i = 0; i < golden.count(); ++i) {
      const StepResult step =
          runner_.draft(token, runner_.boundary() + static_cast<std::int32_t>(i));
      token = step.token;
      tokens.push_back(token);
      logits.insert(logits.end(), step.logits.begin(), step.logits.end());
    }
    const Golden* expected = find("mtp.draft_logits");
    checks_.path(name("mtp.draft"), tokens, golden.ids,
                 expected ? logit_rows("mtp.draft_logits", *expected) : LogitRows());
    // After a draft that differs, the later ones continue from another token.
    const auto same = std::mismatch(tokens.begin(), tokens.end(), golden.ids.begin()).first;
    if (expected && same == tokens.end()) {
      compare("mtp.draft_logits", Quantity::kLogits, logits);
    } else if (expected) {
      checks_.skip(name("mtp.draft_logits"), "the drafts left the golden path");
    }
  }

  // Feeds the golden ids, so that every row can be compared whatever was chosen before.
  void steps() {
    const Golden* greedy = find("greedy");
    if (!greedy) {
      throw Error(FRT_ERR_FORMAT, "golden case " + golden_.name + " in " + golden_.file +
                                      " has step_logits but no greedy ids");
    }
    std::vector<std::int32_t> chosen = {last_.token};
    std::vector<float> logits;
    for (std::size_t i = 0; i + 1 < greedy->ids.size(); ++i) {
      const StepResult step = runner_.decode(greedy->ids[i]);
      chosen.push_back(step.token);
      logits.insert(logits.end(), step.logits.begin(), step.logits.end());
    }
    // The golden rows the ids were taken from: the prompt's last row, then those of the steps.
    LogitRows rows = {golden_row(static_cast<std::int32_t>(prompt_.size()) - 1)};
    if (const Golden* step_logits = find("step_logits")) {
      const LogitRows more = logit_rows("step_logits", *step_logits);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    checks_.path(name("greedy"), chosen, greedy->ids, rows);
    compare("step_logits", Quantity::kLogits, logits);
    states("end.");

    std::vector<std::int32_t> positions(static_cast<std::size_t>(runner_.boundary()));
    std::iota(positions.begin(), positions.end(), 0);
    const auto layers = static_cast<std::size_t>(model_.architecture().layer_count());
    for (std::size_t i = 0; i < layers; ++i) {
      if (!model_.architecture().attends(i)) continue;
      const std::string layer = std::to_string(i);
      cache_rows("k." + layer, "layer." + layer + ".keys", positions);
      cache_rows("v." + layer, "layer." + layer + ".values", positions);
    }
  }

  using LogitRows = std::vector<std::span<const float>>;
  LogitRows logit_rows(const std::string& tensor, const Golden& golden) const {
    const auto width = static_cast<std::size_t>(config_.vocabulary);
    if (golden.values.size() % width != 0) {
      throw Error(FRT_ERR_MISMATCH,
                  "golden tensor " + name(tensor) + " has " + std::to_string(golden.values.size()) +
                      " values, no multiple of the model's " + std::to_string(width) +
                      " tokens; these goldens belong to another model");
    }
    LogitRows rows;
    for (std::size_t at = 0; at < golden.values.size(); at += width) {
      rows.push_back(std::span(golden.values).subspan(at, width));
    }
    return rows;
  }

  // The golden logits row of a position, or empty.
  std::span<const float> golden_row(std::int32_t position) const {
    const Golden* logits = find("logits");
    if (!logits) return {};
    std::size_t row = static_cast<std::size_t>(position);
    if (const Golden* rows = find("logit_rows")) {
      const auto found = std::find(rows->ids.begin(), rows->ids.end(), position);
      if (found == rows->ids.end()) return {};
      row = static_cast<std::size_t>(found - rows->ids.begin());
    }
    const LogitRows stored = logit_rows("logits", *logits);
    return row < stored.size() ? stored[row] : std::span<const float>();
  }

  // Feeds ids from a clear slot on, and appends how the last of them was routed, which takes a
  // traced run where a gate asks for it.
  StepResult prefix(std::span<const std::int32_t> ids, std::vector<Routing>& routed) {
    const auto position = static_cast<std::int32_t>(ids.size()) - 1;
    routed.push_back(golden_routing(position, [&](const TraceRequest& request, Trace& trace) {
      runner_.clear();
      runner_.prefill_traced(ids, request, trace);
    }));
    runner_.clear();
    return runner_.prefill(ids);
  }
  // How `run` routes the position, compared with the goldens.
  Routing golden_routing(std::int32_t position,
                         const std::function<void(const TraceRequest&, Trace&)>& run) const {
    TraceRequest request;
    request.rows = routing_.positions(position);
    if (checks_.exact() || request.rows.empty()) return Routing::kUnknown;
    Trace trace;
    run(request, trace);
    return routing_.of(position, routing_.layers(), {request.rows, trace.router_ids});
  }

  void pieces() {
    const auto length = static_cast<std::int32_t>(prompt_.size());
    const std::span<const std::int32_t> prompt(prompt_);

    runner_.clear();
    const StepResult graph = runner_.prefill(prompt);
    checks_.bits(name("graph_equals_eager"), graph.logits, last_.logits);

    std::vector<float> computed, expected;
    std::vector<Routing> routed;
    for (const std::int32_t count : {1, 2, 3, 4, 63, 64, 65, 127, 128, 129, length - 1}) {
      if (count < 1 || count >= length) continue;
      const auto golden = golden_row(count - 1);
      if (golden.empty()) continue;
      const StepResult result = prefix(prompt.first(static_cast<std::size_t>(count)), routed);
      computed.insert(computed.end(), result.logits.begin(), result.logits.end());
      expected.insert(expected.end(), golden.begin(), golden.end());
    }
    if (!expected.empty()) {
      if (routing_.layers() == 0) routed.clear();
      checks_.values(name("prefixes"), Quantity::kLogits, computed, expected, config_.vocabulary,
                     routed);
    } else if (length > 1) {
      checks_.skip(name("prefixes"), "the file has no logits of any of them");
    }

    if (length < 3) return;  // too short to read a part of it and feed two tokens one by one
    if (golden_row(length - 1).empty()) {
      return checks_.skip(name("split"), "the file has no logits of the last position");
    }
    const auto cut = static_cast<std::size_t>(length / 2);
    const auto begin = [&] {
      runner_.clear();
      runner_.prefill(prompt.first(cut));
      runner_.decode(prompt[cut]);
      return runner_.decode(prompt[cut + 1]);
    };
    const auto rest = prompt.subspan(cut + 2);
    Routing at_end = Routing::kUnknown;
    if (!rest.empty()) {
      at_end = golden_routing(length - 1, [&](const TraceRequest& request, Trace& trace) {
        begin();
        runner_.prefill_traced(rest, request, trace);
      });
    }
    StepResult split = begin();
    if (!rest.empty()) split = runner_.prefill(rest);
    checks_.values(name("split"), Quantity::kLogits, split.logits, golden_row(length - 1),
                   config_.vocabulary,
                   std::span(&at_end, routing_.layers() == 0 ? std::size_t{0} : std::size_t{1}));
  }

  // Greedy speculation: propose, feed one by one while the proposals are what the trunk chooses.
  // Nothing is ever fed that is not accepted, so no state has to be taken back.
  void speculation() {
    const Golden& golden = *find("spec_accepted");
    const Golden* greedy = find("greedy");
    if (!model_.has_draft() || !greedy) {
      return checks_.skip(name("spec_accepted"), "the model has no draft head loaded");
    }
    const std::int32_t width = speculation_width();
    runner_.clear();
    std::int32_t pending = runner_.prefill(prompt_).token;
    std::size_t tokens = 1;
    std::vector<std::int32_t> accepted;
    while (tokens < greedy->count()) {
      std::vector<std::int32_t> proposals;
      for (std::int32_t i = 0; i < width; ++i) {
        const std::int32_t from = proposals.empty() ? pending : proposals.back();
        proposals.push_back(runner_.draft(from, runner_.boundary() + i).token);
      }
      std::int32_t best = runner_.decode(pending).token;
      std::int32_t kept = 0;
      while (kept < width && proposals[static_cast<std::size_t>(kept)] == best) {
        best = runner_.decode(best).token;
        ++kept;
      }
      pending = best;
      tokens += static_cast<std::size_t>(kept) + 1;
      accepted.push_back(kept);
    }
    checks_.counts(name("spec_accepted"), accepted, golden.ids);
  }

  // Nothing in the file is passed over in silence.
  void leftovers() {
    for (const auto& [tensor, golden] : golden_.tensors) {
      if (tensor != "ids" && !looked_at_.contains(tensor)) {
        checks_.skip(name(tensor), "no such tensor in this model");
      }
    }
  }

  const Model& model_;
  const Config& config_;
  const GoldenCase& golden_;
  Checks& checks_;
  Runner runner_;
  const std::vector<std::int32_t>& prompt_;
  GoldenRouting routing_;
  StepResult last_;  // of the traced prompt
  mutable std::set<std::string> looked_at_;
};

// prompts.json: conversations, the prompts they render to, their ids, and the text of the answer.
void run_prompts(const Model& model, const std::filesystem::path& file, Checks& checks) {
  const models::Tokenizer* tokenizer = model.tokenizer();
  if (!tokenizer) return checks.skip("prompts", "the checkpoint has no tokenizer.json");
  const models::Json defaults =
      read_generation_defaults(model.checkpoint(), model.config().end_ids);
  const auto end_ids = defaults.value("stop_token_ids", std::vector<std::int32_t>());
  for (const models::Json& entry : io::read_json_file(file)) {
    const std::string name = entry.value("case", "?");
    const auto text = entry.value("prompt", std::string());
    models::PromptText prompt;
    prompt.format(text);
    if (entry.contains("messages")) {
      const models::Json tools = entry.value("tools", models::Json());
      const models::Json options = entry.value("options", models::Json());
      prompt = model.architecture().chat().render(entry["messages"], tools, options);
      checks.text(name + ".prompt", prompt.text(), text);
    }
    if (entry.contains("ids")) {
      checks.ids(name + ".prompt_ids", tokenizer->encode(prompt.text(), {prompt.plain(), 0, true}),
                 entry["ids"].get<std::vector<std::int32_t>>());
    }
    if (entry.contains("greedy") && entry.contains("text")) {
      auto answer = entry["greedy"].get<std::vector<std::int32_t>>();
      answer.erase(std::find_first_of(answer.begin(), answer.end(), end_ids.begin(), end_ids.end()),
                   answer.end());
      checks.text(name + ".text", tokenizer->decode(answer, true),
                  entry["text"].get<std::string>());
    }
  }
}

frt_status run(frt_model model, const char* path, frt_selftest_report report, void* user,
               frt_error* error) {
  return guard(error, [&] {
    if (!model || !path || !report) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "selftest: model, path and report must be given");
    }
    run_selftest(model_of(model).model, path, report, user);
  });
}

}  // namespace

void run_selftest(const Model& model, const std::filesystem::path& path, frt_selftest_report report,
                  void* user) {
  const Precision& precision = model.parts().precision;
  const bool exact = precision.activation == FRT_DTYPE_F32 && precision.residual == FRT_DTYPE_F32 &&
                     precision.cache == FRT_DTYPE_F32;
  Checks checks(report, user, exact, model.config().mixture());
  for (const GoldenCase& golden : read_goldens(path)) CaseTest(model, golden, checks).run();
  if (const auto prompts = find_prompts(path)) run_prompts(model, *prompts, checks);
}

const frt_selftest_v1& selftest_table() noexcept {
  static constexpr frt_selftest_v1 kTable = {sizeof(frt_selftest_v1), 0, run};
  return kTable;
}

}  // namespace frt::lm
