// SPDX-License-Identifier: Apache-2.0
// JSON from outside that is nested a million levels deep: an error of the file, not of the stack.
#include <doctest/doctest.h>

#include <filesystem>
#include <frt/error.hpp>
#include <frt/io/file.hpp>
#include <string>

#include "../scratch_folder.hpp"
#include "lm/capsules/content.hpp"
#include "lm/run_record.hpp"

using namespace frt::host;

namespace {

using Folder = frt::test::ScratchFolder;

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("capsule metadata that is nested deeply anywhere is refused") {
  CapsuleContent content;
  content.name = "a";
  content.chunk = 16;
  content.sampling.top_p = content.sampling.repetition_penalty = 1;
  content.digest = digest_of("", {});
  const std::string text = content_to_text(content);
  REQUIRE_NOTHROW(content_from_text(text));
  for (const std::size_t levels : {300'000, 500'000}) {
    for (const std::string& deep :
         {replaced(text, "\"extra\":{}", "\"extra\":" + nested(levels)),
          replaced(text, "\"token\":-1", "\"token\":" + nested(levels)),
          replaced(text, "\"steps\":[]", "\"steps\":" + nested(levels)),
          replaced(text, "\"format\":\"frt.lm.capsule/1\"", "\"format\":" + nested(levels))}) {
      CHECK_THROWS_WITH_AS(content_from_text(deep), doctest::Contains("nested deeper than"),
                           frt::Error);
    }
  }
}

TEST_CASE("an integer of 30 digits comes back from capsule metadata as it was") {
  CapsuleContent content;
  content.name = "a";
  content.chunk = 16;
  content.sampling.top_p = content.sampling.repetition_penalty = 1;
  content.digest = digest_of("", {});
  const std::string digits = "\"n\":123456789012345678901234567890";
  const std::string text =
      replaced(content_to_text(content), "\"extra\":{}", "\"extra\":{" + digits + "}");
  CHECK(content_to_text(content_from_text(text)) == text);
}

TEST_CASE("a run record that is nested deeply anywhere is refused") {
  const Folder folder;
  const auto file = folder.path / "run.json";
  RunRecord record;
  record.chunk = 16;
  record.sampling.top_p = record.sampling.repetition_penalty = 1;
  write_record(record, file);
  const std::string text = frt::io::read_file(file, "record", 1 << 20);
  for (const char* member : {"\"format\"", "\"steps\"", "\"sampling\"", "\"prompt\""}) {
    CAPTURE(member);
    const std::string deep = replaced(text, std::string(member) + ": ",
                                      std::string(member) + ": " + nested(2'000'000) + ", \"x\": ");
    frt::io::write_file_atomically(file, deep);
    CHECK_THROWS_WITH_AS(read_record(file), doctest::Contains("nested deeper than"), frt::Error);
  }
}
