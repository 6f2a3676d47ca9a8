// SPDX-License-Identifier: Apache-2.0
// The parts of the hosts that need no model: stop strings, sampling choices, number lists, tables.
#include <doctest/doctest.h>

#include <cmath>
#include <frt/error.hpp>
#include <string>
#include <vector>

#include "bench/lm_bench.hpp"
#include "bench/operator_shape.hpp"
#include "bench/svg_plot.hpp"
#include "cli/terminal/number_list.hpp"
#include "cli/terminal/number_text.hpp"
#include "cli/terminal/output.hpp"
#include "cli/terminal/progress_view.hpp"
#include "cli/terminal/table.hpp"
#include "cli/terminal/text.hpp"
#include "lm/sampling.hpp"
#include "lm/stop_matcher.hpp"
#include "runtime/exit_code.hpp"

using namespace frt::host;
using Json = nlohmann::ordered_json;

namespace {

// Feeds `text` in pieces of `size` and returns everything that is shown.
std::string shown(StopMatcher& matcher, const std::string& text, std::size_t size) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) {
    out += matcher.push(std::string_view(text).substr(at, size));
  }
  return out + (matcher.stopped() ? "" : matcher.flush());
}

std::string refusal(const SamplingChoice& choice) {
  try {
    resolve_sampling(choice, Json::object());
  } catch (const frt::Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a stop string is found however the text is cut, and nothing after it is shown") {
  for (std::size_t size = 1; size <= 12; ++size) {
    StopMatcher matcher({"END", "</s>"});
    CHECK(shown(matcher, "one ENtwo E </s>three END", size) == "one ENtwo E ");
    CHECK(matcher.stopped());
    CHECK(matcher.match() == "</s>");
  }
}

TEST_CASE("text that only begins like a stop string is held back, then shown") {
  StopMatcher matcher({"abcd"});
  CHECK(matcher.push("xxabc") == "xx");
  CHECK(matcher.push("e") == "abce");
  CHECK(matcher.push("ab") == "");
  CHECK(matcher.flush() == "ab");
  CHECK_FALSE(matcher.stopped());
}

TEST_CASE("the earliest stop string wins, overlaps included") {
  StopMatcher first({"bcd", "abc"});
  CHECK(first.push("zabcd") == "z");
  CHECK(first.match() == "abc");
  StopMatcher repeated({"aab"});
  CHECK(shown(repeated, "aaab", 1) == "a");
}

TEST_CASE("an empty stop string is refused") {
  CHECK_THROWS_AS(StopMatcher({""}), frt::Error);
}

TEST_CASE("what the user says wins over the checkpoint, which wins over neutral values") {
  const Json defaults = {{"temperature", 0.5}, {"top_k", 20}};
  SamplingChoice choice;
  choice.seed = 9;
  frt_sampling_params params = resolve_sampling(choice, defaults);
  CHECK(params.temperature == 0.5f);
  CHECK(params.top_k == 20);
  CHECK(params.top_p == 1.0f);
  CHECK(params.repetition_penalty == 1.0f);
  CHECK(params.seed == 9);
  choice.temperature = 0.9f;
  choice.top_k = 0;
  params = resolve_sampling(choice, defaults);
  CHECK(params.temperature == 0.9f);
  CHECK(params.top_k == 0);
}

TEST_CASE("a default of the model that is no number for its parameter is refused, not narrowed") {
  for (const char* text : {R"({"top_k": 4294967297})", R"({"top_k": 1e10})", R"({"top_k": 2.5})",
                           R"({"temperature": 1e300})", R"({"top_p": "1"})"}) {
    CAPTURE(text);
    frt_status status = FRT_OK;
    try {
      resolve_sampling({}, Json::parse(text));
    } catch (const frt::Error& error) {
      status = error.status();
    }
    CHECK(status == FRT_ERR_FORMAT);
  }
}

TEST_CASE("greedy takes no penalty from the checkpoint, only what was asked for") {
  SamplingChoice choice;
  choice.greedy = true;
  const Json defaults = {{"temperature", 1.0}, {"repetition_penalty", 1.2}};
  CHECK(resolve_sampling(choice, defaults).temperature == 0.0f);
  CHECK(resolve_sampling(choice, defaults).repetition_penalty == 1.0f);
  choice.repetition_penalty = 1.1f;
  CHECK(resolve_sampling(choice, defaults).repetition_penalty == 1.1f);
}

TEST_CASE("without a seed two runs differ") {
  CHECK(resolve_sampling({}, Json::object()).seed != resolve_sampling({}, Json::object()).seed);
}

TEST_CASE("every sampling value out of range is refused by name") {
  const auto with = [](auto member, auto value) {
    SamplingChoice choice;
    choice.*member = value;
    return refusal(choice);
  };
  CHECK(with(&SamplingChoice::temperature, -0.1f).find("temperature") != std::string::npos);
  CHECK(with(&SamplingChoice::temperature, INFINITY).find("temperature") != std::string::npos);
  CHECK(with(&SamplingChoice::top_p, 0.0f).find("top-p") != std::string::npos);
  CHECK(with(&SamplingChoice::top_p, 1.01f).find("top-p") != std::string::npos);
  CHECK(with(&SamplingChoice::top_p, NAN).find("top-p") != std::string::npos);
  CHECK(with(&SamplingChoice::min_p, 1.0f).find("min-p") != std::string::npos);
  CHECK(with(&SamplingChoice::top_k, -1).find("top-k") != std::string::npos);
  CHECK(with(&SamplingChoice::repetition_penalty, 0.0f).find("repetition") != std::string::npos);
  CHECK(with(&SamplingChoice::presence_penalty, NAN).find("presence") != std::string::npos);
  CHECK(with(&SamplingChoice::frequency_penalty, NAN).find("frequency") != std::string::npos);
}

TEST_CASE("lists of sizes: numbers, human numbers, ranges that add or multiply") {
  using List = std::vector<uint64_t>;
  CHECK(parse_number_list("512") == List{512});
  CHECK(parse_number_list("0,1k,2") == List{0, 1024, 2});
  CHECK(parse_number_list("128-1k*2") == List{128, 256, 512, 1024});
  CHECK(parse_number_list("0-50+16") == List{0, 16, 32, 48});
  constexpr uint64_t kMost = INT64_MAX;  // the next number of these would wrap
  CHECK(parse_number_list("2-9223372036854775807*9223372036854775807") == List{2});
  CHECK(parse_number_list("9223372036854775807-9223372036854775807+9223372036854775807") ==
        List{kMost});
  for (const char* bad :
       {"", "x", "1,", "-3", "1-2", "8-4*2", "1-8*1", "0-8*2", "1-8+0", "0-1000000+1", "1.5",
        "1,,2", "99999999999999999999", "2-9223372036854775807*9223372036854775807+1"}) {
    INFO(bad);
    CHECK_THROWS_WITH_AS(parse_number_list(bad), doctest::Contains("is no size or range"),
                         ExitError);
  }
}

TEST_CASE("numbers are read strictly, and what does not fit is told with the range") {
  uint64_t wide = 7;
  CHECK(read_number("18446744073709551615", wide).empty());
  CHECK(wide == UINT64_MAX);
  CHECK(read_number("18446744073709551616", wide) ==
        "'18446744073709551616' is outside 0 to 18446744073709551615");
  CHECK(read_number("-1", wide) == "'-1' is outside 0 to 18446744073709551615");
  CHECK(wide == UINT64_MAX);  // as it was
  int32_t narrow = 0;
  CHECK(read_number("-2147483648", narrow).empty());
  CHECK(read_number("2147483648", narrow) == "'2147483648' is outside -2147483648 to 2147483647");
  CHECK(read_number("11", narrow, 1, 10) == "'11' is outside 1 to 10");
  float real = 0;
  CHECK(read_number("-1.5e3", real).empty());
  CHECK(real == -1500.0f);
  for (const char* bad : {"1e39", "inf", "-inf", "nan"}) {
    CHECK(read_number(bad, real).find("is outside") != std::string::npos);
  }
  for (const char* bad :
       {"", " ", "1 ", " 1", "+1", "-", "--1", "0x10", "1'000", "1_000", "1,2", "one", "1\n"}) {
    CAPTURE(bad);
    CHECK(read_number(bad, wide).find("is no whole number") != std::string::npos);
    CHECK(read_number(bad, real).find("is no number") != std::string::npos);
  }
}

TEST_CASE("what a model writes is shown escaped on a terminal, and passed on elsewhere") {
  const std::string hostile =
      "a\x1b[2Jb\tc\n\xc2\x9b"
      "d\xff\u20ac";
  std::string shown, passed;
  ModelText terminal(true), pipe(false);
  for (const char byte : hostile) {  // every character is cut
    shown += terminal.push({&byte, 1});
    passed += pipe.push({&byte, 1});
  }
  CHECK(shown + terminal.flush() ==
        "a\\x1b[2Jb\tc\n\\xc2\\x9b"
        "d\\xff\u20ac");
  CHECK(passed + pipe.flush() == hostile);
  CHECK(terminal.push("\xe2\x82").empty());
  CHECK(terminal.flush() == "\\xe2\\x82");
}

TEST_CASE("a cell of a table cannot begin a row or steer a terminal") {
  Table table({"name", "n"}, {1});
  table.add({"a\nforged 9\x1b[1A", "1"});
  for (const TableFormat format :
       {TableFormat::kAligned, TableFormat::kMarkdown, TableFormat::kCsv}) {
    const std::string text = table.render(format);
    CHECK(text.find("\nforged") == std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("tables align by characters, escape CSV, and refuse rows of another width") {
  Table table({"name", "n"}, {1});
  table.add({"grün", "1"});
  table.add({"a,\"b\"", "23"});
  CHECK(table.render(TableFormat::kAligned) == "name    n\ngrün    1\na,\"b\"  23\n");
  CHECK(table.render(TableFormat::kMarkdown) ==
        "| name  |  n |\n|-------|---:|\n| grün  |  1 |\n| a,\"b\" | 23 |\n");
  CHECK(table.render(TableFormat::kCsv) == "name,n\ngrün,1\n\"a,\"\"b\"\"\",23\n");
  CHECK_THROWS_AS(table.add({"one"}), frt::Error);
}

TEST_CASE("rows share experts: of 256, 8 each, four rows choose about 30.5 different ones") {
  CHECK(expected_experts(256, 8, 1) == doctest::Approx(8));
  CHECK(expected_experts(256, 8, 2) == doctest::Approx(16 - 0.25));  // both rows chose 8 * 8 / 256
  CHECK(expected_experts(256, 8, 4) == doctest::Approx(30.531).epsilon(1e-4));
  CHECK(expected_experts(4, 4, 9) == 4);
  CHECK(expected_experts(0, 0, 3) == 0);
}

TEST_CASE("quantiles are linear between neighbours") {
  CHECK(quantile({4, 1, 3, 2}, 0) == 1);
  CHECK(quantile({4, 1, 3, 2}, 0.5) == 2.5);
  CHECK(quantile({4, 1, 3, 2}, 1) == 4);
  CHECK(std::isnan(quantile({}, 0.5)));
}

TEST_CASE("times and shares read like people write them") {
  CHECK(time_text(0) == "1970-01-01T00:00:00Z");
  CHECK(time_text(1764000000) == "2025-11-24T16:00:00Z");
  CHECK(share_text(0.734) == "73 %");
  CHECK(share_text(1.0) == "100 %");
  CHECK(share_text(4.02) == "> 100 %");
}

TEST_CASE("a plot shows its whole title, in lines that fit, and marks between few decades") {
  std::string title;
  for (int word = 0; word < 40; ++word) title += "word" + std::to_string(word) + " ";
  const std::vector<SvgSeries> series = {{"a", {{1, 12}, {2, 80}}}};
  const std::string svg = svg_plot(title, "x", "y", {{1, "1"}, {2, "2"}}, series);
  std::size_t shown = 0;
  for (std::size_t at = 0; (at = svg.find("font-size=\"15\">", at)) != svg.npos; ++shown) {
    const std::size_t begin = at + 15;
    at = svg.find('<', begin);
    CHECK(at - begin <= 81);
  }
  CHECK(shown == 4);
  CHECK(svg.find("word39") != svg.npos);
  for (const char* mark : {">10<", ">20<", ">50<", ">100<"}) CHECK(svg.find(mark) != svg.npos);
  const std::string tall = svg_plot("t", "x", "y", {}, {{"a", {{1, 1}, {2, 1e6}}}});
  CHECK(tall.find(">1000<") != tall.npos);
  CHECK(tall.find(">2000<") == tall.npos);
}

TEST_CASE("bytes read like people write them") {
  CHECK(format_bytes(12) == "12 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(uint64_t{5} << 30) == "5.0 GiB");
}
