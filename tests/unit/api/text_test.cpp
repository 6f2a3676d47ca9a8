// SPDX-License-Identifier: Apache-2.0
// /v1/completions.
#include "wire.hpp"

using namespace frt::test;
using namespace frt::host;

namespace {

std::string refused(const char* member, const Json& value) {
  return refusal_with(completions(), {{"prompt", "hi"}}, member, value);
}

ApiCall call_with(const char* member, const Json& value) {
  Json body = {{"prompt", "hi"}};
  body[member] = value;
  return parse(completions(), body);
}

}  // namespace

TEST_CASE("a prompt is a text, ids, or a list of either") {
  using Ids = std::vector<int32_t>;
  const auto prompts = [](const Json& value) { return call_with("prompt", value).prompts; };
  CHECK(std::get<std::string>(prompts("x").at(0)) == "x");
  CHECK(std::get<Ids>(prompts({1, 2}).at(0)) == Ids{1, 2});
  CHECK(prompts({"x", "y"}).size() == 2);
  CHECK(std::get<Ids>(prompts(Json::parse("[[1],[2,3]]")).at(1)) == Ids{2, 3});
}

TEST_CASE("fields of a completion reach the call") {
  CHECK(call_with("model", "m").max_tokens == 16);
  CHECK(call_with("max_tokens", 0).max_tokens == 0);
  CHECK(call_with("echo", true).echo);
  CHECK(call_with("logit_bias", {{"7", 3}}).logit_bias.at(0).id == 7);
  CHECK(call_with("n", 2).choices == 2);
  CHECK(!call_with("n", 2).log_probabilities);
  CHECK(call_with("logprobs", 0).log_probabilities);
  CHECK(call_with("logprobs", 5).top_log_probabilities == 5);
}

TEST_CASE("a field of a completion that cannot be served is refused by its name") {
  const std::pair<const char*, Json> cases[] = {
      {"prompt", nullptr},
      {"prompt", ""},
      {"prompt", Json::array()},
      {"prompt", 5},
      {"prompt", {-1}},
      {"prompt", {1, "x"}},
      {"prompt", {"x", 1}},
      {"prompt", {1.5}},
      {"prompt", {uint64_t{1} << 31}},
      {"prompt", std::vector<std::string>(33, "x")},
      {"prompt", Json::parse("[[]]")},
      {"suffix", "x"},
      {"logit_bias", {{"x", 1}}},
      {"echo", 1},
      {"logprobs", true},
      {"logprobs", 21},
      {"best_of", 0},
      {"best_of", 21},
      {"best_of", "2"},
      {"max_tokens", -2},
      {"response_format", {{"type", "json_object"}}},
  };
  for (const auto& entry : cases) {
    const char* name = entry.first;
    const Json& value = entry.second;
    CAPTURE(name);
    CAPTURE(value.dump());
    CHECK(refused(name, value).starts_with(name));
  }
}

TEST_CASE("best_of is at least n, and is not streamed") {
  CHECK(call_with("best_of", 5).best_of == 5);
  CHECK(call_with("best_of", 5).answers() == 5);
  CHECK(call_with("n", 3).answers() == 3);
  CHECK(call_with("best_of", 1).answers() == 1);
  const auto refused_beside = [](Json base, int best_of) {
    base["prompt"] = "hi";
    return refusal_with(completions(), base, "best_of", best_of);
  };
  CHECK(refused_beside({{"n", 3}}, 2).starts_with("best_of is 2 and n 3"));
  CHECK(refused_beside({{"n", 3}}, 3) == "");
  CHECK(refused_beside({{"stream", true}}, 2).starts_with("best_of is more than n beside stream"));
  CHECK(refused_beside({{"stream", true}, {"n", 2}}, 2) == "");
}

TEST_CASE("a completion's pieces joined are the whole, for every prompt and answer") {
  ApiCall call = call_with("prompt", {"x", "y"});
  call.choices = 2;
  Story story;
  story.finishes.clear();
  for (uint32_t i = 0; i < 4; ++i) {
    story.told.push_back({i, text("a" + std::to_string(i)), {}});
    story.told.push_back({i, text("b"), {}});
    story.finishes[i] = {.finish = i == 1 ? Finish::kLength : Finish::kStop};
  }
  const Json whole = whole_reply(completions(), call, story);
  CHECK(whole["object"] == "text_completion");
  CHECK(whole["usage"]["completion_tokens"] == 7);
  std::map<int, std::string> joined, ends;
  const auto records = streamed_reply(completions(), call, story);
  for (const Record& record : records) {
    if (record.data == "[DONE]") continue;
    const Json& choice = record.data["choices"][0];
    joined[choice["index"]] += choice["text"];
    if (choice["finish_reason"].is_string()) ends[choice["index"]] = choice["finish_reason"];
  }
  CHECK(records.back().data == "[DONE]");
  REQUIRE(whole["choices"].size() == 4);
  for (const Json& choice : whole["choices"]) {
    CHECK(joined[choice["index"]] == choice["text"].get<std::string>());
    CHECK(ends[choice["index"]] == choice["finish_reason"].get<std::string>());
  }
  CHECK(whole["choices"][1]["finish_reason"] == "length");
}

TEST_CASE("log probabilities of a completion have offsets in characters") {
  ApiCall call = call_with("logprobs", 1);
  Story story;
  story.told = {{0, text("é"), ApiTokenProbability{"é", std::nullopt}},
                {0, text("b"), ApiTokenProbability{"b", -0.5f, {{"b", -0.5f}}}}};
  CHECK(whole_reply(completions(), call, story)["choices"][0]["logprobs"] ==
        Json::parse(R"({"tokens": ["é", "b"], "token_logprobs": [null, -0.5],
                        "top_logprobs": [null, {"b": -0.5}], "text_offset": [0, 1]})"));
  // A sampled token that is not among the likeliest is there, and of two with one text the first.
  Story unlikely;
  unlikely.told = {{0, text("c"), ApiTokenProbability{"c", -3.f, {{"b", -0.5f}, {"b", -2.f}}}}};
  CHECK(whole_reply(completions(), call, unlikely)["choices"][0]["logprobs"]["top_logprobs"] ==
        Json::parse(R"([{"b": -0.5, "c": -3.0}])"));
  CHECK(
      streamed_reply(completions(), call, story)[1].data["choices"][0]["logprobs"]["text_offset"] ==
      Json::array({1}));
}
