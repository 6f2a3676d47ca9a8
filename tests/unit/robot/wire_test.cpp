// SPDX-License-Identifier: Apache-2.0
// The openpi wire: golden bytes, limits, and bytes that nobody should send.
#include <doctest/doctest.h>

#include <cstring>
#include <frt/error.hpp>
#include <random>
#include <string>
#include <vector>

#include "robot/service/wire/message.hpp"
#include "robot/service/wire/observation.hpp"
#include "robot/service/wire/shown.hpp"

using namespace frt::host;

namespace {

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string refusal(const std::string& bytes) {
  try {
    Message message;
    message.parse(bytes);
    read_request(message);
  } catch (const frt::Error& error) {
    return error.what();
  }
  return {};
}

// {"observation/state": float32[2] = [1, 2], "prompt": "do"} as openpi's client packs it.
std::string observation_bytes() {
  MessageWriter out;
  out.map(2);
  out.text("observation/state");
  const float values[2] = {1, 2};
  out.ndarray("<f4", {2}, {reinterpret_cast<const char*>(values), sizeof(values)});
  out.text("prompt");
  out.text("do");
  return out.take();
}

}  // namespace

TEST_CASE("the codec writes the protocol's golden bytes") {
  MessageWriter out;
  out.map(2);
  out.text("actions");
  std::vector<float> values = {0, 1, 2, 3, 4, 5};
  out.ndarray("<f4", {2, 3}, {reinterpret_cast<const char*>(values.data()), 24});
  out.text("server_timing");
  out.map(1);
  out.text("infer_ms");
  out.number(1.5);
  CHECK(out.bytes() ==
        from_hex(
            "82a7616374696f6e7384c40b5f5f6e6461727261795f5fc3c40464617461c418000000000000803f000000"
            "4000004040000080400000a040c4056474797065a33c6634c4057368617065920203ad7365727665725f"
            "74696d696e6781a8696e6665725f6d73cb3ff8000000000000"));
}

TEST_CASE("an observation has the bytes that openpi's client sends, and is read back") {
  const std::string bytes = observation_bytes();
  CHECK(bytes.size() == 80);
  Message message;
  message.parse(bytes);
  const WireRequest request = read_request(message);
  REQUIRE(request.arrays.size() == 1);
  CHECK(request.arrays[0].name == "observation/state");
  CHECK(request.arrays[0].value(1) == 2.0);
  CHECK(request.prompt == "do");
}

TEST_CASE("a reply is actions in f64 and timings, in openpi's order") {
  const double actions[2] = {0.5, -1};
  const WireReply reply = {.actions = actions, .width = 2, .infer_ms = 1.5, .server_ms = 2.5};
  const std::string bytes = write_reply(reply);
  Message message;
  message.parse(bytes);
  const auto* array = message.find(message.root(), "actions");
  REQUIRE(array);
  CHECK(message.find(*array, "dtype")->bytes == "<f8");
  CHECK(std::memcmp(message.find(*array, "data")->bytes.data(), actions, 16) == 0);
  const auto* timing = message.find(message.root(), "server_timing");
  CHECK(number_of(*message.find(*timing, "infer_ms")) == 2.5);
  CHECK(message.find(*timing, "prev_total_ms") == nullptr);
  WireReply later = reply;
  later.previous_total_ms = 7;
  const std::string second = write_reply(later);
  message.parse(second);
  timing = message.find(message.root(), "server_timing");
  CHECK(number_of(*message.find(*timing, "prev_total_ms")) == 7.0);
  CHECK(message.find(message.root(), "network_actions") == nullptr);

  const float network[3] = {1, 2, 3};
  later.network_actions = network;
  const std::string third = write_reply(later);
  message.parse(third);
  array = message.find(message.root(), "network_actions");
  REQUIRE(array);
  CHECK(message.find(*array, "dtype")->bytes == "<f4");
  CHECK(message.find(*array, "data")->bytes.size() == 12);
  CHECK(message.find(message.root(), "policy_timing"));
}

TEST_CASE("integers of every size are read and written in the shortest form") {
  for (const int64_t value :
       {int64_t{0}, int64_t{127}, int64_t{128}, int64_t{255}, int64_t{256}, int64_t{65535},
        int64_t{65536}, int64_t{1} << 32, INT64_MAX, int64_t{-1}, int64_t{-32}, int64_t{-33},
        int64_t{-128}, int64_t{-129}, int64_t{-32768}, int64_t{-32769}, int64_t{INT32_MIN} - 1,
        INT64_MIN}) {
    MessageWriter out;
    out.integer(value);
    Message message;
    message.parse(out.bytes());
    CAPTURE(value);
    CHECK(message.root().integer == value);
  }
  MessageWriter small, large;
  small.integer(127);
  large.integer(-32769);
  CHECK(small.bytes().size() == 1);
  CHECK(large.bytes().size() == 5);
}

TEST_CASE("a member that another one leaves without effect is refused") {
  const auto request_of = [](bool seed, bool noise, bool prompt, bool ids) {
    MessageWriter out;
    out.map(static_cast<uint32_t>(seed + noise + prompt + ids));
    if (seed) {
      out.text("seed");
      out.integer(7);
    }
    if (noise) {
      out.text("noise");
      out.ndarray("<f4", {1}, std::string(4, '\0'));
    }
    if (prompt) {
      out.text("prompt");
      out.text("reach");
    }
    if (ids) {
      out.text("prompt_token_ids");
      out.array(1);
      out.integer(2);
    }
    Message message;
    message.parse(out.bytes());
    return read_request(message);
  };
  CHECK_NOTHROW(request_of(true, false, true, false));
  CHECK_NOTHROW(request_of(false, true, false, true));
  CHECK_THROWS_WITH_AS(request_of(true, true, false, false), doctest::Contains("'noise'"),
                       frt::Error);
  CHECK_THROWS_WITH_AS(request_of(false, false, true, true), doctest::Contains("prompt_token_ids"),
                       frt::Error);
}

TEST_CASE("nested maps become names with slashes, scalars and ids are understood") {
  MessageWriter out;
  out.map(6);
  out.text("num_steps");
  out.map(3);
  out.binary("__npgeneric__");
  out.boolean(true);
  out.binary("data");
  out.integer(4);
  out.binary("dtype");
  out.text("<i8");
  out.text("images");
  out.map(1);
  out.text("cam_high");
  out.ndarray("|u1", {1, 1, 3}, "abc");
  out.text("gripper");
  out.number(0.25);
  out.text("seed");
  out.integer(7);
  out.text("rl");
  out.map(1);
  out.text("beta");
  out.number(1.5);
  out.text("prompt_token_ids");
  out.array(2);
  out.integer(2);
  out.integer(108);
  Message message;
  message.parse(out.bytes());
  const WireRequest request = read_request(message);
  REQUIRE(request.find("images/cam_high"));
  CHECK(request.find("images/cam_high")->shape[2] == 3);
  CHECK(request.find("gripper")->value(0) == 0.25);
  CHECK(request.seed == 7u);
  CHECK(request.steps == 4u);
  CHECK(request.guidance == GuidanceStrengths{{1.5}, 1});
  CHECK(request.prompt_ids == std::vector<int32_t>{2, 108});
  std::vector<std::string> aligned;
  for (const frt_array& array : to_arrays(request, aligned)) {
    CHECK(reinterpret_cast<uintptr_t>(array.data) % (frt::dtype_bits(array.dtype) / 8) == 0);
  }
}

namespace {

// {name: {key: what `value` writes}}
template <class Write>
WireRequest request_of(const char* name, const char* key, Write&& value, std::string& bytes,
                       Message& message) {
  MessageWriter out;
  out.map(1);
  out.text(name);
  out.map(1);
  out.text(key);
  value(out);
  bytes = out.take();
  message.parse(bytes);
  return read_request(message);
}

}  // namespace

TEST_CASE("lists of numbers are arrays, and strengths of guidance may be lists") {
  std::string bytes;
  Message message;
  const auto list = [](MessageWriter& out, std::initializer_list<double> values) {
    out.array(static_cast<uint32_t>(values.size()));
    for (const double value : values) out.number(value);
  };
  const auto steps = [&](MessageWriter& out) { list(out, {2.5, 1}); };
  const WireRequest schedule = request_of("rl", "beta", steps, bytes, message);
  CHECK(schedule.guidance == GuidanceStrengths{{2.5, 1}, 1});
  const auto table = [&](MessageWriter& out) {
    out.array(1);
    list(out, {2.5, 1.5});
  };
  const WireRequest branches = request_of("rl", "beta", table, bytes, message);
  CHECK(branches.guidance == GuidanceStrengths{{2.5, 1.5}, 2});
  const WireRequest state = request_of("observation", "state", table, bytes, message);
  const WireArray* array = state.find("observation/state");
  REQUIRE(array);
  CHECK(array->rank == 2);
  CHECK(array->shape[1] == 2);
  CHECK(array->value(1) == 1.5);
  const auto ragged = [&](MessageWriter& out) {
    out.array(2);
    list(out, {2.5, 1.5});
    list(out, {2.5});
  };
  CHECK(request_of("extra", "things", ragged, bytes, message).arrays.empty());
  CHECK_THROWS_WITH_AS(request_of("rl", "beta", ragged, bytes, message),
                       doctest::Contains("rl/beta"), frt::Error);
  const auto none = [&](MessageWriter& out) { out.array(0); };
  CHECK_THROWS_WITH_AS(request_of("rl", "beta", none, bytes, message), doctest::Contains("rl/beta"),
                       frt::Error);
  const auto word = [&](MessageWriter& out) { out.text("much"); };
  CHECK_THROWS_WITH_AS(request_of("rl", "beta", word, bytes, message), doctest::Contains("number"),
                       frt::Error);
}

TEST_CASE("a misspelt request option is refused, with the keys there are") {
  std::string bytes;
  Message message;
  const auto two = [](MessageWriter& out) { out.number(2); };
  CHECK_THROWS_WITH_AS(request_of("rl", "bta", two, bytes, message), doctest::Contains("rl/beta"),
                       frt::Error);
  CHECK_THROWS_WITH_AS(request_of("rtc", "dely", two, bytes, message),
                       doctest::Contains("rtc/delay"), frt::Error);
  MessageWriter plain;
  plain.map(1);
  plain.text("rl");
  plain.number(5);
  message.parse(plain.bytes());
  CHECK_THROWS_WITH_AS(read_request(message), doctest::Contains("no map"), frt::Error);
}

TEST_CASE("a request for real-time chunking has its mode and schedule by name") {
  std::string bytes;
  Message message;
  const auto text = [](const char* word) { return [word](MessageWriter& out) { out.text(word); }; };
  const WireRequest locked = request_of("rtc", "mode", text("locked"), bytes, message);
  REQUIRE(locked.continuation);
  CHECK(locked.continuation->mode == FRT_CONTINUE_LOCKED);
  CHECK(locked.continuation->previous == nullptr);
  const WireRequest ones = request_of("rtc", "schedule", text("ones"), bytes, message);
  CHECK(ones.continuation->schedule == FRT_SCHEDULE_ONES);
  CHECK_THROWS_WITH_AS(request_of("rtc", "mode", text("loose"), bytes, message),
                       doctest::Contains("guided, locked, clean"), frt::Error);
  const auto zero = [](MessageWriter& out) { out.number(0); };
  CHECK_THROWS_WITH_AS(request_of("rtc", "max_guidance", zero, bytes, message),
                       doctest::Contains("above 0"), frt::Error);
  MessageWriter empty;
  empty.map(1);
  empty.text("rtc");
  empty.map(0);
  message.parse(empty.bytes());
  CHECK(read_request(message).continuation);
}

TEST_CASE("what breaks the protocol is refused with a reason") {
  CHECK(refusal("").find("ends inside") != std::string::npos);
  CHECK(refusal("\xc1").find("type byte") != std::string::npos);
  CHECK(refusal(from_hex("d40100")).find("extension") != std::string::npos);
  CHECK(refusal(from_hex("ddffffffff")).find("more values than bytes") != std::string::npos);
  CHECK(refusal(from_hex("c6ffffffff")).find("ends inside") != std::string::npos);
  CHECK(refusal(from_hex("8000")).find("follow the value") != std::string::npos);
  CHECK(refusal(from_hex("82a16101a16102")).find("twice") != std::string::npos);
  CHECK(refusal(from_hex("810102")).find("key that is no text") != std::string::npos);
  CHECK(refusal(std::string(40, '\x91') + "\xc0").find("levels") != std::string::npos);
  CHECK(refusal("\x90").find("is a map") != std::string::npos);
}

TEST_CASE("an array whose bytes, shape and type do not agree is refused by name") {
  const auto array = [](const std::string& dtype, const std::vector<uint64_t>& shape,
                        const std::string& data) {
    MessageWriter out;
    out.map(1);
    out.text("x");
    out.ndarray(dtype, shape, data);
    return refusal(out.bytes());
  };
  CHECK(array("<f4", {2}, "12345678") == "");
  CHECK(array("<f4", {3}, "12345678").find("'x'") != std::string::npos);
  CHECK(array(">f4", {2}, "12345678").find("little-endian") != std::string::npos);
  CHECK(array("|O", {1}, "12345678").find("dtype") != std::string::npos);
  CHECK(array("|u1", {1, 1, 1, 1, 1, 1, 1, 1, 8}, "12345678").find("dimensions") !=
        std::string::npos);
  CHECK(array("<f8", {uint64_t{1} << 32, uint64_t{1} << 31}, "").find("too large") !=
        std::string::npos);
}

TEST_CASE("cut and changed messages are refused or read, never more") {
  std::mt19937 random(1);
  const std::string bytes = observation_bytes();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    CHECK(refusal(bytes.substr(0, cut)) != "");
  }
  for (int i = 0; i < 20000; ++i) {
    std::string changed = bytes;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    refusal(changed);
  }
}

TEST_CASE("names are short UTF-8 in one line, and there once; errors show them cut and escaped") {
  const auto named = [](std::string_view name) {
    MessageWriter out;
    out.map(1);
    out.text(name);
    out.number(1);
    return refusal(out.bytes());
  };
  CHECK(named(std::string(256, 'a')) == "");
  const std::string long_name = named(std::string(10 << 20, 'a'));
  CHECK(long_name.find("at most 256") != std::string::npos);
  CHECK(long_name.size() < 300);
  CHECK(named("a\xff").find("\\xff") != std::string::npos);
  CHECK(named("a\x1b[2J").find("\\x1b") != std::string::npos);
  CHECK(named(std::string("a\0b", 3)) != "");

  MessageWriter deep;  // each key is short, the name they make is not
  for (int i = 0; i < 3; ++i) {
    deep.map(1);
    deep.text(std::string(100, 'a'));
  }
  deep.number(1);
  CHECK(refusal(deep.bytes()).find("at most 256") != std::string::npos);

  MessageWriter twice;
  twice.map(2);
  twice.text("a/b");
  twice.number(1);
  twice.text("a");
  twice.map(1);
  twice.text("b");
  twice.number(2);
  CHECK(refusal(twice.bytes()).find("twice") != std::string::npos);

  MessageWriter many;
  many.map(300);
  for (int i = 0; i < 300; ++i) {
    many.text("a" + std::to_string(i));
    many.number(1);
  }
  CHECK(refusal(many.bytes()).find("256 others") != std::string::npos);
}

TEST_CASE("a prompt is UTF-8, and numbers are finite in f32") {
  const auto with = [](std::string_view key, auto put) {
    MessageWriter out;
    out.map(1);
    out.text(key);
    put(out);
    return refusal(out.bytes());
  };
  CHECK(with("prompt", [](auto& out) { out.text("gr\xc3\xbc\xc3\x9f"); }) == "");
  CHECK(with("prompt", [](auto& out) { out.text("gr\xfc"); }).find("see byte 2") !=
        std::string::npos);
  MessageWriter beta;
  beta.map(1);
  beta.text("rl");
  beta.map(1);
  beta.text("beta");
  beta.number(1e300);
  CHECK(refusal(beta.bytes()).find("not finite") != std::string::npos);
}

TEST_CASE("what is shown is cut between characters") {
  CHECK(shown("abc") == "abc");
  CHECK(shown("abcdef", 3) == "abc...");
  CHECK(shown("ab\xc3\xbc", 3) == "ab...");
  CHECK(shown(std::string(1000, '\x80'), 10).size() < 60);
}
