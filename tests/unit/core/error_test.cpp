// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <frt/error.hpp>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

TEST_CASE("every status code has a name of its own, others have none") {
  std::set<std::string> names;
  for (frt_status status = 0; status > -FRT_STATUS_COUNT; --status) {
    names.insert(frt::status_name(status));
  }
  CHECK(names.size() == FRT_STATUS_COUNT);
  CHECK(names.count("FRT_ERR_?") == 0);
  CHECK(std::string(frt::status_name(FRT_OK)) == "FRT_OK");
  CHECK(std::string(frt::status_name(FRT_ERR_INTERNAL)) == "FRT_ERR_INTERNAL");
  CHECK(std::string(frt::status_name(1)) == "FRT_ERR_?");
  CHECK(std::string(frt::status_name(-FRT_STATUS_COUNT)) == "FRT_ERR_?");
}

TEST_CASE("at the C ABI every exception becomes a code and a text") {
  frt_error error{};
  CHECK(frt::guard(&error, [] { throw frt::Error(FRT_ERR_FORMAT, "bad magic"); }) ==
        FRT_ERR_FORMAT);
  CHECK(std::string(error.message) == "bad magic");
  CHECK(frt::guard(&error, [] { throw std::bad_alloc(); }) == FRT_ERR_OUT_OF_MEMORY);
  CHECK(frt::guard(&error, [] { throw std::logic_error("a defect"); }) == FRT_ERR_INTERNAL);
  CHECK(std::string(error.message) == "a defect");
  CHECK(frt::guard(&error, [] { throw 7; }) == FRT_ERR_INTERNAL);
  CHECK(error.code == FRT_ERR_INTERNAL);
  CHECK(frt::guard(nullptr, [] { throw 7; }) == FRT_ERR_INTERNAL);
  CHECK(frt::guard(&error, [] {}) == FRT_OK);
  CHECK(frt::guard(&error, []() -> frt_status { return FRT_ERR_IO; }) == FRT_ERR_IO);
}

TEST_CASE("a text that is too long is cut between characters and says how long it was") {
  frt_error error{};
  std::string text;
  for (int i = 0; i < 400; ++i) text += "\xC3\xA4";
  for (const char* start : {"", "x"}) {
    frt::set_error(&error, FRT_ERR_IO, start + text);
    const std::string_view kept = error.message;
    CHECK(kept.size() >= 510);
    CHECK(kept.ends_with("\xC3\xA4... (80" + std::string(*start ? "1" : "0") + " bytes)"));
  }
}

TEST_CASE("the whole of a text that was cut is given once to the newest that takes such texts") {
  using Texts = std::vector<std::string>;
  const auto keep = [](void* self, const char* text) {
    static_cast<Texts*>(self)->push_back(text);
  };
  Texts older, newer;
  frt_error error{};
  const std::string text(3000, 'x');
  const frt::ErrorSink first(keep, &older);
  {
    const frt::ErrorSink second(keep, &newer);
    frt::set_error(&error, FRT_ERR_IO, text);
    const std::string kept = error.message;
    CHECK(kept.ends_with("xxx... (3000 bytes; the log has all of it)"));
    CHECK(kept.size() == FRT_ERROR_CAPACITY - 1);
    // On its way through other calls it gets longer at its start, and stays known.
    frt::set_error(&error, FRT_ERR_IO, "model 'm': " + kept);
    CHECK(std::string(error.message).starts_with("model 'm': xxx"));
    CHECK(std::string(error.message).ends_with("xxx... (3000 bytes; the log has all of it)"));
    CHECK(newer == Texts{text});
  }
  CHECK(older.empty());
  frt::set_error(&error, FRT_ERR_IO, std::string(100000, 'y'));
  REQUIRE(older.size() == 1);
  CHECK(older[0] == std::string(frt::kLongestErrorText, 'y') + "... (100000 bytes in all)");
  frt::set_error(&error, FRT_ERR_IO, "short");
  CHECK(older.size() == 1);
}

TEST_CASE("a code comes back as an exception with what failed, where and why") {
  frt_error error{};
  frt::set_error(&error, FRT_ERR_NOT_FOUND, "no tensor 'x'");
  CHECK_NOTHROW(frt::check(FRT_OK, error));
  try {
    frt::check(FRT_ERR_NOT_FOUND, error, "loading");
    CHECK(false);
  } catch (const frt::Error& e) {
    CHECK(e.status() == FRT_ERR_NOT_FOUND);
    CHECK(std::string(e.what()) == "loading: no tensor 'x'");
  }
  try {
    frt::check(FRT_ERR_MISMATCH, "restore");
    CHECK(false);
  } catch (const frt::Error& e) {
    CHECK(std::string(e.what()) == "restore failed: FRT_ERR_MISMATCH");
  }
}
