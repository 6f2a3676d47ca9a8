// SPDX-License-Identifier: Apache-2.0
// Records of runs, and the metadata of capsules, as a stranger may have written them. Whatever is
// read holds together, so that replaying it stays within its own prompt and text; all else is
// refused with the member's name.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <frt/error.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cases.hpp"
#include "json_mutation.hpp"
#include "lm/capsules/content.hpp"
#include "lm/run_record.hpp"
#include "lm/sampling.hpp"

using namespace frt::host;

namespace {

using Json = nlohmann::ordered_json;

Json sampling() {
  frt_sampling_params params{};
  params.top_p = params.repetition_penalty = 1;
  params.temperature = 0.5f;
  return sampling_to_json(params);
}

// 20 tokens from a capsule, 9 of a prompt, 4 written.
Json record() {
  return {
      {"format", "frt.lm.run/1"},
      {"manifest", "/m.toml"},
      {"model", "m"},
      {"fingerprint",
       Json::array({Json::array({"config", "3f2a"}), Json::array({"weights", "91bc"})})},
      {"capsule", {{"name", "a"}, {"digest", std::string(32, '7')}, {"boundary", 20}}},
      {"chunk", 8},
      {"prompt", {1, 2, 3, 4, 5, 6, 7, 8, 9}},
      {"steps", {{"prefill", 0, 17}, {"decode", 17, 20}, {"prefill", 20, 29}, {"decode", 29, 32}}},
      {"sampling", sampling()},
      {"pending_shown", false},
      {"tokens", {11, 12, 13, 14}},
      {"log_probabilities", {"bf000000", "bf000001", "bf000002", "bf000003"}}};
}

Json without_capsule() {
  Json json = record();
  json["capsule"] = nullptr;
  json["steps"] = {{"prefill", 0, 9}, {"decode", 9, 12}};
  return json;
}

// In memory where the system has such a file system: there are thousands.
class File {
 public:
  File() {
    const std::filesystem::path memory = "/dev/shm";
    std::string pattern =
        (std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
        "frt-record-XXXXXX";
    REQUIRE(mkdtemp(pattern.data()));
    folder_ = pattern;
  }
  ~File() { std::filesystem::remove_all(folder_); }

  RunRecord read(const std::string& text) const {
    const auto path = folder_ / "run.json";
    std::ofstream(path, std::ios::binary) << text;
    return read_record(path);
  }
  // Why it is refused; "": it is not.
  std::string refusal(const std::string& text) const {
    try {
      read(text);
      return {};
    } catch (const frt::Error& error) {
      CHECK(error.status() == FRT_ERR_FORMAT);
      return error.what();
    }
  }

 private:
  std::filesystem::path folder_;
};

// What replay() does with a record, without a model: every step within the prompt, every token
// compared.
bool holds_together(const RunRecord& record) {
  const uint64_t start = record.start(), read = start + record.prompt.size();
  uint64_t at = 0, compared = record.prompt.empty() && !record.pending_shown ? 1 : 0;
  bool within = record.chunk > 0 && record.tokens.size() == record.log_probabilities.size();
  bool begun = start == 0;
  for_each_step(record.path, record.chunk, [&](uint64_t begin, uint64_t end, bool decode) {
    within = within && begin == at && end > begin && end - begin <= record.chunk;
    at = end;
    begun = begun || begin == start;
    if (begin < start) {
      within = within && end <= start;
      return;
    }
    if (!decode) within = within && end <= read;
    if (end >= read) ++compared;
  });
  const bool ids =
      std::all_of(record.prompt.begin(), record.prompt.end(), [](int32_t id) { return id >= 0; });
  return within && ids && at >= read && (begun || at == start) &&
         compared >= record.tokens.size() && compared <= record.tokens.size() + 2;
}

}  // namespace

TEST_CASE("a record comes back as it was written") {
  const File file;
  for (const Json& json : {record(), without_capsule()}) {
    const RunRecord read = file.read(json.dump());
    CHECK(holds_together(read));
    CHECK(read.tokens == std::vector<int32_t>{11, 12, 13, 14});
    CHECK(read.fingerprint.at(1).second == "91bc");
    CHECK(read.start() == (json["capsule"].is_null() ? 0 : 20));
  }
  Json json = record();  // went on with the capsule's pending token
  json["prompt"] = Json::array();
  json["steps"] = {{"prefill", 0, 17}, {"decode", 17, 23}};
  CHECK(holds_together(file.read(json.dump())));
  json["pending_shown"] = true;
  json["steps"] = {{"prefill", 0, 17}, {"decode", 17, 24}};
  CHECK(holds_together(file.read(json.dump())));
}

TEST_CASE("a record whose steps are not those of its prompt and its text is refused") {
  const File file;
  const auto refuses = [&](const char* part, const Json& steps, const Json& from = record()) {
    Json json = from;
    json["steps"] = steps;
    const std::string refusal = file.refusal(json.dump());
    CAPTURE(steps.dump());
    INFO(refusal);
    CHECK(refusal.find(part) != std::string::npos);
  };
  constexpr uint64_t kMost = UINT64_MAX;
  const Json short_run = without_capsule();
  refuses("tokens 9 to 400, beyond the prompt's 9", {{"prefill", 0, 9}, {"prefill", 9, 400}},
          short_run);
  refuses("no step ends at token 9", {{"prefill", 0, 400}}, short_run);
  refuses("at most 268435456", {{"prefill", 0, kMost}}, short_run);
  refuses("at most 268435456", {{"prefill", 0, 9}, {"decode", 9, kMost}}, short_run);
  refuses("stretch 2", {{"prefill", 0, 9}, {"decode", 9, 14}, {"prefill", 14, 14}}, short_run);
  refuses("stretch 1", {{"prefill", 0, 9}, {"decode", 8, 12}}, short_run);
  refuses("stretch 1", {{"prefill", 0, 9}, {"decode", 10, 12}}, short_run);
  refuses("stretch 0", {{"prefill", 9, 9}, {"decode", 9, 12}}, short_run);
  refuses("stretch 0", {{"prefill", 5, 0}, {"decode", 0, 12}}, short_run);
  refuses("stretch 0", {{"sleep", 0, 9}, {"decode", 9, 12}}, short_run);
  refuses("stretch 0", {{"prefill", -1, 9}, {"decode", 9, 12}}, short_run);
  refuses("stretch 0", {{"prefill", 0.0, 9}, {"decode", 9, 12}}, short_run);
  refuses("begins with a prompt", {{"decode", 0, 9}, {"decode", 9, 12}}, short_run);
  refuses("the prompt's last step is no prefill", {{"prefill", 0, 8}, {"decode", 8, 12}},
          short_run);
  refuses("they give 3 tokens, the run has 4", {{"prefill", 0, 9}, {"decode", 9, 11}}, short_run);
  refuses("they give 7 tokens, the run has 4", {{"prefill", 0, 9}, {"decode", 9, 15}}, short_run);
  refuses("fewer than the 9", Json::array(), short_run);
  refuses("fewer than the 9", {{"prefill", 0, 8}}, short_run);
  // The capsule's end is a cut, too.
  refuses("no step ends at token 20", {{"prefill", 0, 29}, {"decode", 29, 32}});
  CHECK(file.refusal([] {
    Json json = record();
    json["chunk"] = 4;  // 20 is a multiple of it
    json["steps"] = {{"prefill", 0, 29}, {"decode", 29, 32}};
    return json.dump();
  }()) == "");
}

TEST_CASE("a member of a record that is missing, of another type or out of range is named") {
  const File file;
  const auto refuses = [&](const char* name, const Json& value, const char* part) {
    Json json = record();
    json[Json::json_pointer(name)] = value;
    const std::string refusal = file.refusal(json.dump());
    CAPTURE(name);
    CAPTURE(value.dump());
    INFO(refusal);
    CHECK(refusal.find(part) != std::string::npos);
  };
  const Json good = record();
  for (const auto& member : good.items()) {
    const std::string& name = member.key();
    Json json = good;
    json.erase(name);
    CAPTURE(name);
    CHECK(file.refusal(json.dump()).find(name == "format" ? "neither" : name) != std::string::npos);
  }
  refuses("/prompt/3", -1, "prompt[3]");
  refuses("/prompt/3", uint64_t{1} << 32, "prompt[3]");
  refuses("/prompt/3", 2.5, "prompt[3]");
  refuses("/tokens/0", "7", "tokens[0]");
  refuses("/tokens/0", int64_t{-4294967295}, "tokens[0]");
  refuses("/log_probabilities/2", "-0000001", "log_probabilities[2]");
  refuses("/log_probabilities/2", 1, "log_probabilities[2]");
  refuses("/log_probabilities", Json::array(), "one log probability per token");
  refuses("/chunk", 0, "chunk");
  refuses("/chunk", UINT64_MAX, "chunk");
  refuses("/chunk", -8, "chunk");
  refuses("/capsule/boundary", UINT64_MAX, "boundary");
  refuses("/capsule/boundary", UINT64_MAX - 8, "boundary");
  refuses("/capsule/boundary", 0, "boundary");
  refuses("/capsule/name", 7, "name");
  refuses("/capsule/digest", "short", "digest");
  refuses("/capsule", "a", "capsule");
  refuses("/fingerprint/0", "config", "fingerprint[0]");
  refuses("/steps", 7, "steps");
  refuses("/steps/3", Json::array(), "steps");
  refuses("/pending_shown", 1, "pending_shown");
  refuses("/sampling/temperature", -1, "temperature");
  refuses("/sampling/temperature", 1e300, "temperature");
  refuses("/sampling/top_p", 0, "top-p");
  refuses("/sampling/top_k", int64_t{1} << 40, "top_k");
  refuses("/sampling/top_k", 1.5, "top_k");
  refuses("/sampling/seed", -1, "seed");
  refuses("/sampling/use_mask", 1, "with a mask");
  refuses("/sampling/repetition_penalty", 0, "repetition-penalty");
}

// FRT_RECORD_CASES=1000000 for a long run.
TEST_CASE("a record that was changed at random is refused or holds together") {
  const File file;
  std::mt19937_64 random(61);
  uint64_t read = 0;
  const uint64_t cases = frt::test::number_from("FRT_RECORD_CASES", 4000);
  for (uint64_t i = 0; i < cases; ++i) {
    Json json = i % 2 ? record() : without_capsule();
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes)
      frt::test::mutate(json, random);
    std::string text = json.dump();
    if (random() % 4 == 0) text[random() % text.size()] = static_cast<char>(random());
    CAPTURE(i);
    CAPTURE(text);
    try {
      const RunRecord record = file.read(text);
      ++read;
      CHECK(holds_together(record));
    } catch (const frt::Error& error) {
      CHECK(error.status() == FRT_ERR_FORMAT);
    }
  }
  CHECK(read > cases / 100);
  CHECK(read < cases);
}

TEST_CASE("metadata of a capsule that were changed at random are refused or hold together") {
  CapsuleContent content;
  content.model = "m";
  content.chunk = 8;
  content.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  content.path = {{false, 0, 9}, {true, 9, 11}};
  content.sampling.top_p = content.sampling.repetition_penalty = 1;
  content.digest = digest_of(content.owner, content.tokens);
  content.pending = {12, -0.5f, true};
  const Json good = Json::parse(content_to_text(content));
  std::mt19937_64 random(67);
  uint64_t read = 0;
  const uint64_t cases = frt::test::number_from("FRT_RECORD_CASES", 4000);
  for (uint64_t i = 0; i < cases; ++i) {
    Json json = good;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes)
      frt::test::mutate(json, random);
    CAPTURE(i);
    CAPTURE(json.dump());
    try {
      const CapsuleContent taken = content_from_text(json.dump());
      ++read;
      uint64_t at = 0;
      for_each_step(taken.path, taken.chunk, [&](uint64_t begin, uint64_t end, bool) {
        CHECK(begin == at);
        CHECK(end > begin);
        at = end;
      });
      CHECK(at == taken.boundary());
      CHECK(digest_of(taken.owner, taken.tokens) == taken.digest);
    } catch (const frt::Error& error) {
      CHECK(error.status() == FRT_ERR_FORMAT);
    }
  }
  CHECK(read > cases / 100);
  CHECK(read < cases);
}
