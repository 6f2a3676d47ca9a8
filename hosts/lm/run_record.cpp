// SPDX-License-Identifier: Apache-2.0
// Replaying feeds what was recorded, step by step. A decode step feeds the slot's pending token,
// which is the recorded one as long as nothing differed; at the first difference there is nothing
// more to compare, so it ends there.
#include "lm/run_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <frt/io/file.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <utility>

#include "lm/sampling.hpp"

namespace frt::host {
namespace {

using Json = io::Json;

constexpr const char* kFormat = "frt.lm.run/1";
// Two values per token and one per token of the prompt.
constexpr io::JsonLimits kLimits{.depth = 16, .values = std::size_t{1} << 22};

std::string bits(float value) {
  return fmt::format("{:08x}", std::bit_cast<uint32_t>(value));
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(FRT_ERR_FORMAT,
              path.string() + ": " + what + "; give a file that `frt-host run --record` wrote");
}

}  // namespace

void write_record(const RunRecord& record, const std::filesystem::path& path) {
  Json probabilities = Json::array();
  for (const float value : record.log_probabilities) probabilities.push_back(bits(value));
  Json json = {{"format", kFormat},
               {"manifest", record.manifest},
               {"model", record.model},
               {"fingerprint", record.fingerprint},
               {"capsule", nullptr},
               {"chunk", record.chunk},
               {"prompt", record.prompt},
               {"steps", path_to_json(record.path)},
               {"sampling", sampling_to_json(record.sampling)},
               {"pending_shown", record.pending_shown},
               {"tokens", record.tokens},
               {"log_probabilities", probabilities}};
  if (record.capsule) {
    json["capsule"] = {{"name", record.capsule->name},
                       {"digest", to_text(record.capsule->digest)},
                       {"boundary", record.capsule->boundary}};
  }
  io::write_file_atomically(path, io::json_text(json, {.indent = 1}) + "\n");
}

namespace {

// Reads members, and says which one is wrong.
class Reader {
 public:
  Reader(const Json& json, const std::filesystem::path& path) : json_(json), path_(path) {}

  const Json& at(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) wrong(name, "missing");
    return *found;
  }
  [[noreturn]] void wrong(const std::string& name, const std::string& what) const {
    refuse(path_, "member `" + name + "` is " + what);
  }
  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) wrong(name, "no text");
    return value.get<std::string>();
  }
  bool flag(const char* name) const {
    const Json& value = at(name);
    if (!value.is_boolean()) wrong(name, "neither true nor false");
    return value.get<bool>();
  }
  uint64_t number(const char* name, uint64_t least, uint64_t most) const {
    const Json& value = at(name);
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() >= least &&
                      value.get<uint64_t>() <= most;
    if (!fits) wrong(name, fmt::format("no number from {} to {}", least, most));
    return value.get<uint64_t>();
  }
  const Json& list(const char* name) const {
    const Json& value = at(name);
    if (!value.is_array()) wrong(name, "no list");
    return value;
  }
  std::vector<int32_t> ids(const char* name) const {
    std::vector<int32_t> ids;
    for (const Json& id : list(name)) {
      const bool fits = id.is_number_unsigned() && std::in_range<int32_t>(id.get<uint64_t>());
      if (!fits) wrong(fmt::format("{}[{}]", name, ids.size()), "no token id");
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  std::vector<std::pair<std::string, std::string>> pairs(const char* name) const {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const Json& pair : list(name)) {
      const bool fits =
          pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
      if (!fits) wrong(fmt::format("{}[{}]", name, pairs.size()), "no [name, value]");
      pairs.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
    }
    return pairs;
  }
  std::vector<float> float_bits(const char* name) const {
    std::vector<float> values;
    for (const Json& item : list(name)) {
      uint32_t value = 0;
      const std::string digits = item.is_string() ? item.get<std::string>() : std::string();
      const char* end = digits.data() + digits.size();
      const auto parsed = std::from_chars(digits.data(), end, value, 16);
      if (digits.size() != 8 || parsed.ec != std::errc() || parsed.ptr != end) {
        wrong(fmt::format("{}[{}]", name, values.size()), "not 8 hexadecimal digits");
      }
      values.push_back(std::bit_cast<float>(value));
    }
    return values;
  }

 private:
  const Json& json_;
  const std::filesystem::path& path_;
};

// The steps of a run: the capsule's; then the prompt, of which the last step is a prefill that ends
// where the prompt does; then one decode step per token written, but for the last token, and one or
// two more whose token nobody saw.
void check_steps(const RunRecord& record, const std::filesystem::path& path) {
  const auto wrong = [&](const std::string& what) { refuse(path, "member `steps`: " + what); };
  const uint64_t start = record.start(), read = start + record.prompt.size();
  const uint64_t fed = record.path.empty() ? 0 : record.path.back().end;
  if (fed < read) wrong(fmt::format("{} tokens, fewer than the {} of the prompt", fed, read));
  if (read == 0 || record.path.front().decode) wrong("a run begins with a prompt");
  for (const uint64_t cut : {start, read}) {
    if (!is_cut(record.path, record.chunk, cut)) {
      wrong(fmt::format("no step ends at token {}, where the {} does", cut,
                        cut == start ? "capsule" : "prompt"));
    }
  }
  for (const Stretch& stretch : record.path) {
    if (!stretch.decode && stretch.end > read) {
      wrong(fmt::format("a prefill of tokens {} to {}, beyond the prompt's {}", stretch.begin,
                        stretch.end, read));
    }
    const bool last_read = !record.prompt.empty() && stretch.begin < read && stretch.end >= read;
    if (last_read && stretch.decode) wrong("the prompt's last step is no prefill");
  }
  const bool first_known = !record.prompt.empty() || !record.pending_shown;
  const uint64_t sampled = fed - read + (first_known ? 1 : 0), tokens = record.tokens.size();
  if (tokens > sampled || tokens + 2 < sampled) {
    wrong(fmt::format("they give {} tokens, the run has {}", sampled, tokens));
  }
}

}  // namespace

RunRecord read_record(const std::filesystem::path& path) {
  const Json json = io::read_json_file(path, kLimits);
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    refuse(path, std::string("it is neither a ") + kFormat + " nor an episode (.npz)");
  }
  const Reader reader(json, path);
  RunRecord record;
  record.manifest = reader.text("manifest");
  record.model = reader.text("model");
  record.fingerprint = reader.pairs("fingerprint");
  record.chunk = reader.number("chunk", 1, kMostTokens);
  record.prompt = reader.ids("prompt");
  record.pending_shown = reader.flag("pending_shown");
  record.tokens = reader.ids("tokens");
  record.log_probabilities = reader.float_bits("log_probabilities");
  if (record.log_probabilities.size() != record.tokens.size()) {
    refuse(path, "there is not one log probability per token");
  }
  const Json& steps = reader.list("steps");
  uint64_t fed = 0;
  if (!steps.empty()) {
    const Json& last = steps.back();
    const bool shaped = last.is_array() && last.size() == 3 && last[2].is_number_unsigned();
    if (!shaped) reader.wrong("steps", "no list of [kind, begin, end]");
    fed = last[2].get<uint64_t>();
  }
  try {
    record.sampling = sampling_from_json(reader.at("sampling"));
    check_sampling(record.sampling, FRT_ERR_FORMAT);
    if (record.sampling.use_mask != 0) {
      reader.wrong("sampling", "one with a mask, which no run has");
    }
    if (const Json& capsule = reader.at("capsule"); !capsule.is_null()) {
      if (!capsule.is_object()) reader.wrong("capsule", "neither an object nor null");
      const Reader inside(capsule, path);
      record.capsule =
          RunRecord::Start{inside.text("name"), digest_from_text(inside.text("digest")),
                           inside.number("boundary", 1, kMostTokens)};
    }
    record.path = path_from_json(steps, fed);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(path.string())) throw;
    refuse(path, error.what());
  }
  check_steps(record, path);
  return record;
}

std::string fingerprint_difference(const RunRecord& record,
                                   std::span<const frt_fingerprint_field> now) {
  for (const auto& [name, value] : record.fingerprint) {
    const auto found = std::find_if(now.begin(), now.end(), [&, &wanted = name](const auto& field) {
      return field.name == wanted;
    });
    if (found == now.end()) return name + ": recorded " + value + ", now absent";
    if (value != found->value) return name + ": recorded " + value + ", now " + found->value;
  }
  for (const frt_fingerprint_field& field : now) {
    const bool known = std::any_of(record.fingerprint.begin(), record.fingerprint.end(),
                                   [&](const auto& item) { return item.first == field.name; });
    if (!known) return std::string(field.name) + ": not recorded, now " + field.value;
  }
  return {};
}

namespace {

// What the record alone does not tell: whether this model can make its steps.
void check_fits(const RunRecord& record, const LmModel& model) {
  const frt_lm_info& info = model.info();
  if (record.tokens.empty()) {
    throw Error(FRT_ERR_FORMAT,
                "the record has no tokens, so nothing was compared; record a run that writes some "
                "(`--max-new` above 0)");
  }
  const uint64_t fed = record.path.back().end;
  if (fed > info.max_context) {
    throw Error(FRT_ERR_MISMATCH,
                fmt::format("the recorded run fed {} tokens, the context of model '{}' has room "
                            "for {}; raise its option max_context",
                            fed, model.name(), info.max_context));
  }
  model.check_ids(record.prompt, "the recorded prompt's token");
  model.check_ids(record.tokens, "the recorded token");
}

}  // namespace

ReplayResult replay(const RunRecord& record, Session& session, StepRunner& runner) {
  check_fits(record, runner.model());
  const TokenJournal& journal = session.journal();
  if (record.chunk != journal.chunk()) {
    throw Error(FRT_ERR_MISMATCH,
                fmt::format("the run was recorded with prefill_chunk = {}, the model has {}; give "
                            "--set model.{}.options.prefill_chunk={}",
                            record.chunk, journal.chunk(), record.model, record.chunk));
  }
  const uint64_t start = record.start();
  if (journal.size() != start || journal.path() != path_until(record.path, start)) {
    throw Error(FRT_ERR_MISMATCH,
                fmt::format("the recorded run began after {} tokens, the slot holds {} in other "
                            "steps; the capsule '{}' was written anew since",
                            start, journal.size(), record.capsule ? record.capsule->name : ""));
  }
  runner.set_sampling({&record.sampling, 1});
  session.start_request();
  ReplayResult result;
  // Token i of the text, as it came out now. False: it differs.
  const auto compare = [&](int32_t token, float log_probability) {
    if (result.compared == record.tokens.size()) return true;
    result.recorded_token = record.tokens[result.compared];
    result.recorded_log_probability = record.log_probabilities[result.compared];
    result.token = token;
    result.log_probability = log_probability;
    result.same = result.token == result.recorded_token &&
                  std::bit_cast<uint32_t>(result.log_probability) ==
                      std::bit_cast<uint32_t>(result.recorded_log_probability);
    if (result.same) ++result.compared;
    return result.same;
  };
  const uint64_t read = start + record.prompt.size();
  const std::span<const int32_t> prompt = record.prompt;
  if (prompt.empty() && !record.pending_shown) {
    const PendingToken& pending = session.pending();
    if (!compare(pending.token, pending.log_probability)) return result;
  }
  bool going = true;
  int32_t pending = session.pending().token;
  for_each_step(record.path, record.chunk, [&](uint64_t begin, uint64_t end, bool decode) {
    if (begin < start || !going) return;
    const bool silent = end < read;  // samples, but nobody looked
    if (decode && begin < read && pending != prompt[begin - start]) {
      throw Error(
          FRT_ERR_MISMATCH,
          fmt::format("the recorded run fed token {} at position {}, as it was sampled; now "
                      "{} was sampled there, so the run cannot be made again",
                      prompt[begin - start], begin, pending));
    }
    const uint64_t ticket =
        decode ? session.decode() : session.prefill(prompt.subspan(begin - start, end - begin));
    if (decode) session.fed(pending);
    pending = runner.wait(ticket)[0];
    if (!silent) going = compare(pending, runner.log_probabilities(ticket)[0]);
  });
  return result;
}

}  // namespace frt::host
