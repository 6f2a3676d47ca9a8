// SPDX-License-Identifier: Apache-2.0
// Replaying feeds what was recorded, step by step. A decode step feeds the slot's pending token,
// which is the recorded one as long as nothing differed; at the first difference there is nothing
// more to compare, so it ends there.
#include "lm/run_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>

#include "lm/sampling.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "frt.lm.run/1";

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
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  file.close();
  if (!file) {
    throw Error(FRT_ERR_IO, "cannot write the record " + path.string() + "; choose another file");
  }
}

RunRecord read_record(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw Error(FRT_ERR_NOT_FOUND, "cannot read the record " + path.string());
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    refuse(path, std::string("it is neither a ") + kFormat + " nor an episode (.npz)");
  }
  RunRecord record;
  const char* member = "";
  try {
    const auto at = [&](const char* name) -> const Json& { return json.at(member = name); };
    at("manifest").get_to(record.manifest);
    at("model").get_to(record.model);
    at("fingerprint").get_to(record.fingerprint);
    at("chunk").get_to(record.chunk);
    at("prompt").get_to(record.prompt);
    at("pending_shown").get_to(record.pending_shown);
    at("tokens").get_to(record.tokens);
    record.sampling = sampling_from_json(at("sampling"));
    uint64_t start = 0;
    if (const Json& capsule = at("capsule"); !capsule.is_null()) {
      record.capsule = RunRecord::Start{capsule.at("name").get<std::string>(),
                                        digest_from_text(capsule.at("digest").get<std::string>()),
                                        capsule.at("boundary").get<uint64_t>()};
      start = record.capsule->boundary;
    }
    const Json& steps = at("steps");
    const uint64_t fed = steps.empty() ? 0 : steps.back().at(2).get<uint64_t>();
    record.path = path_from_json(steps, fed);
    if (record.chunk == 0 || fed < start + record.prompt.size()) {
      refuse(path, "the steps do not cover the prompt");
    }
    for (const Json& text : at("log_probabilities")) {
      const auto& digits = text.get_ref<const std::string&>();
      std::size_t end = 0;
      const auto value = static_cast<uint32_t>(std::stoul(digits, &end, 16));
      if (digits.size() != 8 || end != 8) refuse(path, "a log probability has 8 digits");
      record.log_probabilities.push_back(std::bit_cast<float>(value));
    }
  } catch (const Json::exception& problem) {
    refuse(path, fmt::format("member `{}`: {}", member, problem.what()));
  } catch (const std::logic_error&) {
    refuse(path, fmt::format("member `{}` is malformed", member));
  }
  if (record.log_probabilities.size() != record.tokens.size()) {
    refuse(path, "there is not one log probability per token");
  }
  return record;
}

std::string fingerprint_difference(const RunRecord& record,
                                   std::span<const frt_fingerprint_field> now) {
  for (const auto& [name, value] : record.fingerprint) {
    const auto* found = std::find_if(now.data(), now.data() + now.size(),
                                     [&](const auto& field) { return field.name == name; });
    if (found == now.data() + now.size()) return name + ": recorded " + value + ", now absent";
    if (value != found->value) return name + ": recorded " + value + ", now " + found->value;
  }
  for (const frt_fingerprint_field& field : now) {
    const bool known = std::any_of(record.fingerprint.begin(), record.fingerprint.end(),
                                   [&](const auto& item) { return item.first == field.name; });
    if (!known) return std::string(field.name) + ": not recorded, now " + field.value;
  }
  return {};
}

ReplayResult replay(const RunRecord& record, Session& session, StepRunner& runner) {
  const TokenJournal& journal = session.journal();
  if (record.chunk != journal.chunk()) {
    throw Error(FRT_ERR_MISMATCH,
                fmt::format("the run was recorded with prefill_chunk = {}, the model has {}; give "
                            "--set model.{}.options.prefill_chunk={}",
                            record.chunk, journal.chunk(), record.model, record.chunk));
  }
  const uint64_t start = record.capsule ? record.capsule->boundary : 0;
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
    const uint64_t ticket =
        decode ? session.decode() : session.prefill(prompt.subspan(begin - start, end - begin));
    if (decode) session.fed(pending);
    pending = runner.wait(ticket)[0];
    if (!silent) going = compare(pending, runner.log_probabilities(ticket)[0]);
  });
  return result;
}

}  // namespace frt::host
