// SPDX-License-Identifier: Apache-2.0
#include "prompt.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <frt/error.hpp>
#include <frt/models/sentencepiece.hpp>
#include <span>
#include <string>

using namespace frt::pi05;

namespace {

Prompt tagged(std::string_view form, bool with_state, std::string_view tag = "Advantage: positive",
              std::string_view task = "fold the_shirt") {
  static constexpr std::array<double, 2> kState = {0.0, -1.5};
  PromptParts parts;
  parts.task = task;
  parts.state = kState;
  parts.with_state = with_state;
  parts.tag = tag;
  parts.form = form;
  return build_prompt(parts);
}

}  // namespace

TEST_CASE("the tag stands where its template puts it") {
  CHECK(tagged("openpi_clean", false).text == "fold the shirt Advantage: positive");
  CHECK(tagged("openpi_clean", true).text ==
        "Task: fold the shirt Advantage: positive, State: 128 -1;\nAction: ");
  CHECK(tagged("raw_newline", false).text == "fold the shirt\nAdvantage: positive");
  CHECK(tagged("raw_newline", false).newline);
  CHECK(tagged("raw_newline", true).text ==
        "Task: fold the shirt\nAdvantage: positive, State: 128 -1;\nAction: ");
  CHECK(tagged("before_action", true).text ==
        "Task: fold the shirt, State: 128 -1;\nAdvantage: positive\nAction: ");
  CHECK(tagged("before_action", false).text == "fold the shirt\nAdvantage: positive");
}

TEST_CASE("without a task the tag is the task") {
  CHECK(tagged("openpi_clean", false, "Advantage: positive", "").text == "Advantage: positive");
  CHECK(tagged("raw_newline", false, "Advantage: positive", "").text == "Advantage: positive");
}

TEST_CASE("a branch without a tag reads the plain prompt, whatever the template") {
  for (const char* form : {"openpi_clean", "raw_newline", "before_action"}) {
    CHECK(tagged(form, false, "").text == "fold the shirt");
    CHECK(tagged(form, true, "").text == "Task: fold the shirt, State: 128 -1;\nAction: ");
  }
}

TEST_CASE(
    "free templates fill in task, state and tag; a line that held only the tag goes with it") {
  constexpr std::string_view kForm = "Task: {task}, State: {state};\n{tag}\nAction: ";
  CHECK(tagged(kForm, true).text ==
        "Task: fold the shirt, State: 128 -1;\nAdvantage: positive\nAction: ");
  CHECK(tagged(kForm, true, "").text == "Task: fold the shirt, State: 128 -1;\nAction: ");
  CHECK(tagged("{task} [{tag}]", false, "").text == "fold the shirt []");
}

TEST_CASE("an instruction that names a field of the template stays as it is") {
  PromptParts parts;
  parts.task = "say {state} and {tag}";
  parts.form = "{task}; {state}; {tag}";
  parts.tag = "{task}";
  parts.with_state = true;
  parts.state = std::span<const double>();
  CHECK(build_prompt(parts).text == "say {state} and {tag}; ; {task}");
  parts.tag = "";
  parts.form = "{tag}{task};{tag} {state}.";
  CHECK(build_prompt(parts).text == "say {state} and {tag}; .");
}

TEST_CASE("a prompt beyond the limit is refused without encoding it; control pieces are text") {
  const auto tokenizer = frt::models::SentencePiece::load(std::filesystem::path(FRT_FIXTURES_DIR) /
                                                          "pi05" / "tokenizer" / "tokenizer.model");
  const auto ids = tokenizer.encode("pick up the cup");
  CHECK(tokenizer.encode("pick up the cup", ids.size()) == ids);
  const auto refusal = [&](std::string_view text, std::size_t limit) -> std::string {
    try {
      tokenizer.encode(text, limit);
    } catch (const frt::Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal("pick up the cup", ids.size() - 1).find("15 bytes") != std::string::npos);
  // Not even its UTF-8 is looked at.
  const std::string endless = std::string(20'000'000, 'a') + "\xff";
  CHECK(refusal(endless, 200).find("200 tokens") != std::string::npos);
  CHECK(refusal("a\xff", 0).find("UTF-8 at byte 1") != std::string::npos);
  for (const char* control : {"<bos>", "<eos>", "<pad>"}) {
    const auto letters = tokenizer.encode(control);
    const auto id = tokenizer.piece_id(control);
    CHECK(id >= 0);
    CHECK(tokenizer.piece_id("no such piece") == -1);
    CHECK(std::find(letters.begin(), letters.end(), id) == letters.end());
  }
}
