// SPDX-License-Identifier: Apache-2.0
#include "prompt.hpp"

#include <doctest/doctest.h>

#include <array>

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
