// SPDX-License-Identifier: Apache-2.0
// The log: levels, formats, and text that tries to break a line.
#include <unistd.h>

#include <frt/core/log.hpp>
#include <frt/core/services.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "helpers.hpp"

using namespace frt::core;
using test::has;

namespace {

// What a log with these options writes during `body`.
template <class Body>
std::string written(LogOptions options, Body&& body) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  options.descriptor = ends[1];
  {
    Log log(options);
    body(log);
  }
  ::close(ends[1]);
  std::string text;
  char block[4096];
  for (ssize_t got; (got = ::read(ends[0], block, sizeof(block))) > 0;) {
    text.append(block, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  return text;
}

}  // namespace

TEST_CASE("a text line names level, source and message, without colour off a terminal") {
  const std::string text = written({}, [](Log& log) {
    log.write("frt.cpu", FRT_LOG_WARNING, "3 of {} cores %s");
    log.write("frt.cpu", FRT_LOG_DEBUG, "not shown");
  });
  CHECK(has(text, " warning frt.cpu: 3 of {} cores %s\n"));
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("not shown") == std::string::npos);
}

TEST_CASE("colour comes when it is asked for") {
  LogOptions options;
  options.color = LogColor::kOn;
  CHECK(has(written(options, [](Log& log) { log.write("x", FRT_LOG_ERROR, "e"); }), "\x1b[31m"));
}

TEST_CASE("JSON lines hold one object per message, whatever is in it") {
  LogOptions options;
  options.format = LogFormat::kJsonLines;
  options.level = FRT_LOG_DEBUG;
  const std::string text = written(options, [](Log& log) {
    log.write("a", FRT_LOG_DEBUG, "two\nlines \"quoted\" \xff broken");
    log.write("b", FRT_LOG_PLUGIN_MISBEHAVING, "oops");
  });
  const std::size_t end = text.find('\n');
  REQUIRE(end != std::string::npos);
  const auto first = nlohmann::json::parse(text.substr(0, end));
  CHECK(first["level"] == "debug");
  CHECK(has(first["text"], "two\nlines \"quoted\" "));
  CHECK(std::string(first["time"]).back() == 'Z');
  const auto second = nlohmann::json::parse(text.substr(end + 1));
  CHECK(second["level"] == "plugin misbehaving");
}

TEST_CASE("a message cannot forge a second line") {
  const std::string text = written({}, [](Log& log) {
    log.write("p", FRT_LOG_INFO,
              "fine\n00:00:00.000 error core: forged\x1b[2J \xc2\x9b"
              "31m\x7f");
  });
  CHECK(has(text, "fine\n    00:00:00.000"));
  CHECK(has(text,
            "forged\\x1b[2J \\xc2\\x9b"
            "31m\\x7f\n"));
  LogOptions options;
  options.format = LogFormat::kJsonLines;
  const std::string json = written(options, [](Log& log) {
    log.write("p", FRT_LOG_INFO,
              "\x1b[2J \xc2\x9b"
              "31m\x7f");
  });
  CHECK(has(json, "\\u001b[2J \\u009b31m\\u007f"));
}

TEST_CASE("progress without a sink goes on, and a sink that throws becomes a code") {
  Log log;
  HostServices none(log);
  CHECK(none.report("x", "weights", 0, 1, 2) == FRT_OK);
  HostServices throwing(log, [](auto...) -> frt_status { throw std::runtime_error("no"); });
  CHECK(throwing.report("x", "weights", 0, 1, 2) == FRT_ERR_CALLBACK);
  HostServices stopping(log, [](auto...) -> frt_status { return FRT_ERR_CANCELLED; });
  CHECK(stopping.report("x", "weights", 0, 1, 2) == FRT_ERR_CANCELLED);
}

TEST_CASE("a thread works for the log of its innermost scope, other threads do not") {
  CHECK(LogScope::current() == nullptr);
  std::string second;
  const std::string first = written({}, [&](Log& mine) {
    second = written({}, [&](Log& other) {
      CHECK(&LogScope::current_or(other) == &other);
      const LogScope scope(&mine);
      CHECK(&LogScope::current_or(other) == &mine);
      {
        const LogScope none(nullptr);
        CHECK(&LogScope::current_or(other) == &other);
        const LogScope inner(&other);
        CHECK(LogScope::current() == &other);
      }
      CHECK(LogScope::current() == &mine);
      std::thread([] { CHECK(LogScope::current() == nullptr); }).join();
      // The sink of the services that were made last is asked; the scope says whose error it is.
      const HostServices older(mine), newer(other);
      frt_error error{};
      frt::set_error(&error, FRT_ERR_IO, std::string(1000, 'x'));
    });
  });
  CHECK(LogScope::current() == nullptr);
  CHECK(has(first, std::string(1000, 'x')));
  CHECK(second.empty());
}
